//! One delivered message, from its arrival until it is acknowledged or handed back.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_nats::{
    Client, HeaderMap, Message,
    jetstream::{self, AckKind},
};
use broker::AckError;
use bytes::Bytes;
use time::OffsetDateTime;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    receipt::{Clock, Receipt},
    returner::{ReturnedDelivery, Returner},
    workload::Workload,
};

const PANIC_RETURN_DELAY: Duration = Duration::from_secs(1);

/// One delivered message, held until it is settled.
///
/// It is not `Clone` and settling consumes it, so that it cannot be settled twice. If it is dropped unsettled
/// (panic or abort), the [`Returner`] hands it back at once.
#[must_use = "an unsettled delivery comes back"]
#[derive(Debug)]
pub struct Delivery<W: Workload> {
    pub kind: W::Kind,
    /// The sequence of the message in the queue.
    pub sequence: u64,
    /// How often the server has delivered this message, including this time.
    pub deliveries: u64,
    pub published_at: OffsetDateTime,
    message: Message,
    /// Journal of what is in this message; set once it is claimed.
    journal: OnceLock<Arc<W::Journal>>,
    /// Counts the deliveries of a message that was delivered too often, until what is in it is claimed.
    probation: Mutex<Option<Arc<W::Journal>>>,
    /// `None` once settled.
    receipt: Option<Receipt>,
    returner: Returner<W>,
    /// The pool slot that this delivery occupies; freed on drop.
    _slot: OwnedSemaphorePermit,
}

/// How a message is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Acknowledged: the server removes it.
    Acknowledge,
    /// Another process did its work. Acknowledged only while the delivery is fresh, since
    /// another process may already be settling the message.
    AcknowledgeIfFresh,
    /// Handed back (nak), to be redelivered after this delay.
    HandBack(Duration),
    /// Another delivery owns the message. An acknowledgement would act on that delivery, so none is sent.
    LeaveAlone,
}

/// Shared by all deliveries of a pool.
#[derive(Debug)]
pub(crate) struct DeliveryContext<W: Workload> {
    pub(crate) kind: W::Kind,
    pub(crate) ack_wait: Duration,
    pub(crate) clock: Arc<Clock>,
    pub(crate) returner: Returner<W>,
    pub(crate) jetstream: jetstream::Context,
}

impl<W: Workload> Delivery<W> {
    /// Wraps a message. Returns `None` if it has no acknowledgement subject and so is no JetStream delivery.
    pub(super) fn accept(
        context: &DeliveryContext<W>,
        message: Message,
        slot: OwnedSemaphorePermit,
    ) -> Option<Self> {
        let message = jetstream::Message { message, context: context.jetstream.clone() };
        let info = message.info().ok()?;
        let (sequence, deliveries) = (info.stream_sequence, u64::try_from(info.delivered).unwrap_or(1));
        let published_at = info.published;
        let message = message.message;
        let receipt = Receipt::new(message.reply.clone()?, context.ack_wait, &context.clock);
        Some(Self {
            kind: context.kind.clone(),
            sequence,
            deliveries,
            published_at,
            message,
            journal: OnceLock::new(),
            probation: Mutex::default(),
            receipt: Some(receipt),
            returner: context.returner.clone(),
            _slot: slot,
        })
    }

    /// Sets the redelivery delay that applies if this delivery is dropped unsettled.
    pub(super) fn set_return_delay(&mut self, delay: Duration) {
        if let Some(receipt) = &mut self.receipt {
            receipt.return_delay = Some(delay);
        }
    }

    /// Attaches the journal of what was claimed, so that it is released if the delivery is handed back.
    pub fn set_journal(&self, journal: &Arc<W::Journal>) {
        self.journal.get_or_init(|| Arc::clone(journal));
    }

    pub fn journal(&self) -> Option<&Arc<W::Journal>> {
        self.journal.get()
    }

    /// Attaches a journal that counts the deliveries of a message that was delivered too often. It too is
    /// released if the delivery is handed back.
    pub fn set_probation(&self, journal: Option<Arc<W::Journal>>) {
        *self.probation.lock().unwrap_or_else(PoisonError::into_inner) = journal;
    }

    pub fn probation(&self) -> Option<Arc<W::Journal>> {
        self.probation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn subject(&self) -> &str {
        &self.message.subject
    }

    pub fn headers(&self) -> Option<&HeaderMap> {
        self.message.headers.as_ref()
    }

    pub fn body(&self) -> &Bytes {
        &self.message.payload
    }

    /// Returns how long the server waits for an acknowledgement or a heartbeat.
    pub fn ack_wait(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, |receipt| receipt.ack_wait)
    }

    /// Interval between calls of [`extend`](Self::extend). Two heartbeats may be lost before the server
    /// redelivers.
    pub fn heartbeat_interval(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, |receipt| receipt.ack_wait / 3)
    }

    /// How long the server still waits before it gives the message to another process, as far as it has
    /// confirmed that.
    pub fn time_left(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, Receipt::time_left)
    }

    /// Sends a heartbeat (in-progress acknowledgement). Call it in the task that does the work, so that no
    /// heartbeat is sent after the work has ended.
    ///
    /// Fails with [`AckError::Stale`] if `ack_wait` has expired.
    pub async fn extend(&self, client: &Client) -> Result<(), AckError> {
        match &self.receipt {
            Some(receipt) => receipt.extend(client).await,
            None => Ok(()),
        }
    }

    /// Settles the delivery and waits for the server to confirm it: a lost acknowledgement means a
    /// redelivery.
    pub async fn settle(mut self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let settled = self.try_settle(client, settlement).await;
        // Not before: if this future is dropped halfway, it is unknown whether the server settled the
        // message, so it is handed back. The next delivery finds the outcome and settles it.
        drop(self.receipt.take());
        settled
    }

    async fn try_settle(&self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let Some(receipt) = &self.receipt else { return Ok(()) };
        let verb = match settlement {
            Settlement::LeaveAlone => return Ok(()),
            // The outcome is stored, so the message is done, whichever delivery owns it.
            Settlement::Acknowledge => AckKind::Ack,
            // The server redelivers the message by itself, or has already done so.
            Settlement::AcknowledgeIfFresh | Settlement::HandBack(_) if !receipt.is_fresh() => return Ok(()),
            Settlement::AcknowledgeIfFresh => AckKind::Ack,
            Settlement::HandBack(delay) => AckKind::Nak(Some(delay)),
        };
        receipt.settle(client, verb).await
    }
}

impl<W: Workload> Drop for Delivery<W> {
    fn drop(&mut self) {
        let Some(mut receipt) = self.receipt.take() else { return };
        let mut journals: Vec<Arc<W::Journal>> =
            self.journal.take().into_iter().chain(self.probation()).collect();
        if std::thread::panicking() {
            // A panic counts as a failed attempt, so the journal is not released, and the redelivery is
            // delayed.
            journals.clear();
            receipt.return_delay = Some(PANIC_RETURN_DELAY);
        }
        self.returner.hand_back(ReturnedDelivery { kind: self.kind.clone(), receipt, journals });
    }
}
