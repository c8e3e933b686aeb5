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
use broker::{AckError, retry::Waits};
use bytes::Bytes;
use subjects::Kind;
use time::OffsetDateTime;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{Returner, returner::Returned};
use crate::journal::Journal;

const ONE_ACK: Duration = Duration::from_secs(2);
const SETTLE_WITHIN: Duration = Duration::from_secs(3);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const AFTER_PANIC: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// One delivered message, ours until it is settled.
///
/// It cannot be copied, and settling consumes it, so nothing is settled twice or forgotten: one that is
/// dropped unsettled, by a panic or an abort, is handed back at once by the [`Returner`].
#[must_use = "an unsettled delivery comes back"]
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    /// How often the server has delivered this message, this time included.
    pub(crate) deliveries: u64,
    pub(crate) published_at: OffsetDateTime,
    message: Message,
    /// Set once the handoff in it is ours.
    journal: OnceLock<Arc<Journal>>,
    /// Counts the deliveries of a message that is delivered often, until its handoff is claimed.
    probation: Mutex<Option<Arc<Journal>>>,
    /// `None` once settled.
    receipt: Option<Receipt>,
    returner: Returner,
    /// The place this delivery takes; given up when the delivery is.
    _slot: OwnedSemaphorePermit,
}

static_assertions::assert_not_impl_any!(Delivery: Clone);

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Done with: the server removes it.
    Done,
    /// Done with by another's hand. Acknowledged only while the message is known to be ours: a frozen instance has no
    /// business with what another may be settling.
    DoneElsewhere,
    /// To be delivered again after that time.
    Again(Duration),
    /// Someone else's by now. An acknowledgement would act on the new owner's delivery, so none is sent.
    LeaveAlone,
}

/// How to acknowledge a message, and since when we know that it is ours.
#[derive(Debug)]
pub(super) struct Receipt {
    ack: async_nats::Subject,
    ack_wait: Duration,
    clock: Arc<Clock>,
    /// Milliseconds of the clock at the last moment the server is known to have counted this message as ours.
    confirmed: AtomicU64,
    /// How long it should not be delivered again when it is handed back.
    pub(super) return_after: Option<Duration>,
}

/// Instants as numbers, so that they fit into an atomic.
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
    /// Whether the server can have given this message to no one else yet.
    pub(super) fn is_fresh(&self) -> bool {
        let age = self.clock.now().saturating_sub(self.confirmed.load(Ordering::Relaxed));
        Duration::from_millis(age) < self.ack_wait
    }

    async fn send(&self, client: &Client, verb: AckKind, within: Duration) -> Result<(), AckError> {
        broker::confirm(client, &self.ack, verb.into(), within).await
    }

    /// Tries a little longer. A server that was restarted may have forgotten that it delivered this message; it then
    /// never answers, and the slot is worth more than the answer: the message comes back and is settled then.
    async fn send_again(&self, client: &Client, verb: AckKind, mut error: AckError) -> Result<(), AckError> {
        let mut waits = Waits::within(FIRST_WAIT, LONGEST_WAIT, SETTLE_WITHIN.min(self.ack_wait));
        while let Some(wait) = waits.next_wait() {
            tokio::time::sleep(wait).await;
            match self.send(client, verb, ONE_ACK).await {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            }
        }
        Err(error)
    }

    /// Ends a delivery that was dropped, unless its time has run out and the message may be someone else's.
    pub(super) async fn give_back(&self, client: &Client, verb: AckKind) -> Result<(), AckError> {
        if self.is_fresh() { self.send(client, verb, ONE_ACK).await } else { Ok(()) }
    }
}

/// What all deliveries of a pool have in common.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) kind: Kind,
    pub(crate) ack_wait: Duration,
    pub(crate) clock: Arc<Clock>,
    pub(crate) returner: Returner,
    pub(crate) jetstream: jetstream::Context,
}

impl Delivery {
    /// Takes a message in. One without an acknowledgement subject is no delivery of JetStream's.
    pub(super) fn accept(terms: &Terms, message: Message, slot: OwnedSemaphorePermit) -> Option<Self> {
        let message = jetstream::Message { message, context: terms.jetstream.clone() };
        let info = message.info().ok()?;
        let (sequence, deliveries) = (info.stream_sequence, u64::try_from(info.delivered).unwrap_or(1));
        let published_at = info.published;
        let message = message.message;
        let receipt = Receipt {
            ack: message.reply.clone()?,
            ack_wait: terms.ack_wait,
            clock: Arc::clone(&terms.clock),
            confirmed: AtomicU64::new(terms.clock.now()),
            return_after: None,
        };
        Some(Self {
            kind: terms.kind,
            sequence,
            deliveries,
            published_at,
            message,
            journal: OnceLock::new(),
            probation: Mutex::default(),
            receipt: Some(receipt),
            returner: terms.returner.clone(),
            _slot: slot,
        })
    }

    /// When dropped unsettled, it is delivered again after this time and not at once.
    pub(super) fn return_after(&mut self, time: Duration) {
        if let Some(receipt) = &mut self.receipt {
            receipt.return_after = Some(time);
        }
    }

    /// Sets the journal of the handoff in it, which is ours: when it is handed back, its journal says so.
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

    /// How long the server waits for a sign of us.
    pub(crate) fn ack_wait(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, |receipt| receipt.ack_wait)
    }

    /// How often to [extend](Self::extend): two beats may be lost before the server gives the message to someone else.
    pub(crate) fn beat_every(&self) -> Duration {
        self.receipt.as_ref().map_or(Duration::MAX, |receipt| receipt.ack_wait / 3)
    }

    /// Tells the server that the message is still being worked on. To be called in the same task as the work, so that
    /// a heartbeat cannot outlive what it stands for.
    pub(crate) async fn extend(&self, client: &Client) -> Result<(), AckError> {
        let Some(receipt) = &self.receipt else { return Ok(()) };
        // The server confirms a beat whoever owns the message, so one that comes too late proves nothing.
        if !receipt.is_fresh() {
            return Err(AckError::Stale);
        }
        // A confirmed beat proves the connection; what counts is when it was sent.
        let sent = receipt.clock.now();
        receipt.send(client, AckKind::Progress, receipt.ack_wait / 3).await?;
        receipt.confirmed.store(sent, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the delivery. Waits until the server says so: an acknowledgement lost on the way means a redelivery.
    pub(crate) async fn settle(mut self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let settled = self.try_settle(client, settlement).await;
        // Only now: dropped in the middle, nobody knows whether the server heard of it, and it is handed back. Whoever
        // gets it then finds the answer and settles it.
        drop(self.receipt.take());
        settled
    }

    async fn try_settle(&self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let Some(receipt) = &self.receipt else { return Ok(()) };
        let verb = match settlement {
            Settlement::LeaveAlone => return Ok(()),
            // Its answer is stored, so it is done with, whoever holds it.
            Settlement::Done => AckKind::Ack,
            // It goes to someone else by itself, or has gone already.
            Settlement::DoneElsewhere | Settlement::Again(_) if !receipt.is_fresh() => return Ok(()),
            Settlement::DoneElsewhere => AckKind::Ack,
            Settlement::Again(delay) => AckKind::Nak(Some(delay)),
        };
        match receipt.send(client, verb, ONE_ACK).await {
            Ok(()) => Ok(()),
            // Seldom, so it should not make every settlement larger.
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
            // An attempt that panics counts like one that dies, and is not repeated at once.
            journals.clear();
            receipt.return_after = Some(AFTER_PANIC);
        }
        self.returner.take_back(Returned { kind: self.kind, receipt, journals });
    }
}
