//! One delivered message, from its arrival until it is acknowledged or handed back.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, HeaderMap, Message,
    jetstream::{self, AckKind},
};
use broker::{AckError, retry::RetryDelays};
use bytes::Bytes;
use subjects::Kind;
use time::OffsetDateTime;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{Returner, returner::ReturnedDelivery};
use crate::journal::Journal;

const ACK_TIMEOUT: Duration = Duration::from_secs(2);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const PANIC_RETURN_DELAY: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(2);

/// One delivered message, held until it is settled.
///
/// It is not `Clone` and settling consumes it, so that it cannot be settled twice. If it is dropped unsettled
/// (panic or abort), the [`Returner`] hands it back at once.
#[must_use = "an unsettled delivery comes back"]
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    /// How often the server has delivered this message, including this time.
    pub(crate) deliveries: u64,
    pub(crate) published_at: OffsetDateTime,
    message: Message,
    /// Journal of the handoff in this message; set once the handoff is claimed.
    journal: OnceLock<Arc<Journal>>,
    /// Counts the deliveries of a message that was delivered too often, until its handoff is claimed.
    probation: Mutex<Option<Arc<Journal>>>,
    /// `None` once settled.
    receipt: Option<Receipt>,
    returner: Returner,
    /// The pool slot that this delivery occupies; freed on drop.
    _slot: OwnedSemaphorePermit,
}

static_assertions::assert_not_impl_any!(Delivery: Clone);

/// How a message is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Acknowledged: the server removes it.
    Acknowledge,
    /// The handoff was answered by another instance. Acknowledged only while the delivery is fresh, since
    /// another instance may already be settling the message.
    AcknowledgeIfFresh,
    /// Handed back (nak), to be redelivered after this delay.
    HandBack(Duration),
    /// Another delivery owns the message. An acknowledgement would act on that delivery, so none is sent.
    LeaveAlone,
}

/// The acknowledgement subject of a message, and when the server last confirmed the delivery.
#[derive(Debug)]
pub(super) struct Receipt {
    ack: async_nats::Subject,
    ack_wait: Duration,
    clock: Arc<Clock>,
    /// When the server last confirmed this delivery, in milliseconds of `clock`.
    confirmed_at: AtomicU64,
    /// Redelivery delay if the message is handed back; `None` for none.
    pub(super) return_delay: Option<Duration>,
}

/// Converts instants to milliseconds, which fit into an atomic.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self(Instant::now()))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Receipt {
    /// Returns whether `ack_wait` has not expired, so that the server cannot have redelivered the message.
    pub(super) fn is_fresh(&self) -> bool {
        let age = self.clock.now().saturating_sub(self.confirmed_at.load(Ordering::Relaxed));
        Duration::from_millis(age) < self.ack_wait
    }

    async fn send(&self, client: &Client, verb: AckKind, within: Duration) -> Result<(), AckError> {
        broker::confirm(client, &self.ack, verb.into(), within).await
    }

    /// Retries for a short time.
    ///
    /// A server that was restarted may not remember the delivery and then never confirms it. Waiting longer
    /// would block the slot: the message is redelivered and settled then.
    async fn send_again(&self, client: &Client, verb: AckKind, mut error: AckError) -> Result<(), AckError> {
        let mut waits = RetryDelays::within(FIRST_WAIT, MAX_WAIT, SETTLE_TIMEOUT.min(self.ack_wait));
        while let Some(wait) = waits.next_delay() {
            tokio::time::sleep(wait).await;
            match self.send(client, verb, ACK_TIMEOUT).await {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        Err(error)
    }

    /// Settles a dropped delivery, unless `ack_wait` has expired and another delivery may own the message.
    pub(super) async fn hand_back(&self, client: &Client, verb: AckKind) -> Result<(), AckError> {
        if self.is_fresh() { self.send(client, verb, ACK_TIMEOUT).await } else { Ok(()) }
    }
}

/// Shared by all deliveries of a pool.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryContext {
    pub(crate) kind: Kind,
    pub(crate) ack_wait: Duration,
    pub(crate) clock: Arc<Clock>,
    pub(crate) returner: Returner,
    pub(crate) jetstream: jetstream::Context,
}

impl Delivery {
    /// Wraps a message. Returns `None` if it has no acknowledgement subject and so is no JetStream delivery.
    pub(super) fn accept(
        context: &DeliveryContext,
        message: Message,
        slot: OwnedSemaphorePermit,
    ) -> Option<Self> {
        let message = jetstream::Message { message, context: context.jetstream.clone() };
        let info = message.info().ok()?;
        let (sequence, deliveries) = (info.stream_sequence, u64::try_from(info.delivered).unwrap_or(1));
        let published_at = info.published;
        let message = message.message;
        let receipt = Receipt {
            ack: message.reply.clone()?,
            ack_wait: context.ack_wait,
            clock: Arc::clone(&context.clock),
            confirmed_at: AtomicU64::new(context.clock.now()),
            return_delay: None,
        };
        Some(Self {
            kind: context.kind,
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

    /// Attaches the journal of the claimed handoff, so that it is released if the delivery is handed back.
    pub(crate) fn set_journal(&self, journal: &Arc<Journal>) {
        self.journal.get_or_init(|| Arc::clone(journal));
    }

    pub(crate) fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get()
    }

    pub(crate) fn set_probation(&self, journal: Option<Arc<Journal>>) {
        *self.probation.lock().unwrap_or_else(PoisonError::into_inner) = journal;
    }

    pub(crate) fn probation(&self) -> Option<Arc<Journal>> {
        self.probation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn subject(&self) -> &str {
        &self.message.subject
    }

    pub(crate) fn headers(&self) -> Option<&HeaderMap> {
        self.message.headers.as_ref()
    }

    pub(crate) fn body(&self) -> &Bytes {
        &self.message.payload
    }

    /// How long the server waits for an acknowledgement or a heartbeat.
    pub(crate) fn ack_wait(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, |receipt| receipt.ack_wait)
    }

    /// Interval between calls of [`extend`](Self::extend). Two heartbeats may be lost before the server
    /// redelivers.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, |receipt| receipt.ack_wait / 3)
    }

    /// Sends a heartbeat (in-progress acknowledgement). Call it in the task that does the work, so that no
    /// heartbeat is sent after the work has ended.
    ///
    /// Fails with [`AckError::Stale`] if `ack_wait` has expired.
    pub(crate) async fn extend(&self, client: &Client) -> Result<(), AckError> {
        let Some(receipt) = &self.receipt else { return Ok(()) };
        // The server confirms a heartbeat to any sender, so a late one does not prove ownership.
        if !receipt.is_fresh() {
            return Err(AckError::Stale);
        }
        // `ack_wait` restarts when the server receives the heartbeat, so the time of sending is the safe
        // bound.
        let sent = receipt.clock.now();
        receipt.send(client, AckKind::Progress, receipt.ack_wait / 3).await?;
        receipt.confirmed_at.store(sent, Ordering::Relaxed);
        Ok(())
    }

    /// Settles the delivery and waits for the server to confirm it: a lost acknowledgement means a
    /// redelivery.
    pub(crate) async fn settle(mut self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let settled = self.try_settle(client, settlement).await;
        // Not before: if this future is dropped halfway, it is unknown whether the server settled the
        // message, so it is handed back. The next delivery finds the answer and settles it.
        drop(self.receipt.take());
        settled
    }

    async fn try_settle(&self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let Some(receipt) = &self.receipt else { return Ok(()) };
        let verb = match settlement {
            Settlement::LeaveAlone => return Ok(()),
            // The answer is stored, so the message is done, whichever delivery owns it.
            Settlement::Acknowledge => AckKind::Ack,
            // The server redelivers the message by itself, or has already done so.
            Settlement::AcknowledgeIfFresh | Settlement::HandBack(_) if !receipt.is_fresh() => return Ok(()),
            Settlement::AcknowledgeIfFresh => AckKind::Ack,
            Settlement::HandBack(delay) => AckKind::Nak(Some(delay)),
        };
        match receipt.send(client, verb, ACK_TIMEOUT).await {
            Ok(()) => Ok(()),
            // Boxed to keep the common path small.
            Err(error) => Box::pin(receipt.send_again(client, verb, error)).await,
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let Some(mut receipt) = self.receipt.take() else { return };
        let mut journals: Vec<Arc<Journal>> =
            self.journal.take().into_iter().chain(self.probation()).collect();
        if std::thread::panicking() {
            // A panic counts as a failed attempt, so the journal is not released, and the redelivery is
            // delayed.
            journals.clear();
            receipt.return_delay = Some(PANIC_RETURN_DELAY);
        }
        self.returner.hand_back(ReturnedDelivery { kind: self.kind, receipt, journals });
    }
}
