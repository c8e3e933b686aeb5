use std::{
    convert::Infallible,
    sync::{
        Arc,
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
use subjects::{Kind, Timestamp};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tracing::debug;

use super::Returner;
use crate::telemetry::{KindLabel, Metrics};

const ONE_ACK: Duration = Duration::from_secs(2);
const FIRST_WAIT: Duration = Duration::from_millis(50);
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
    pub(crate) published_at: Option<Timestamp>,
    message: Message,
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
    fn is_fresh(&self) -> bool {
        let age = self.clock.now().saturating_sub(self.confirmed.load(Ordering::Relaxed));
        Duration::from_millis(age) < self.ack_wait
    }

    async fn send(&self, client: &Client, verb: AckKind, within: Duration) -> Result<(), AckError> {
        broker::confirm(client, &self.ack, verb.into(), within).await
    }

    /// Gives a message back, unless its time has run out and it may be someone else's.
    pub(super) async fn give_back(&self, client: &Client) -> Result<(), AckError> {
        if self.is_fresh() { self.send(client, AckKind::Nak(None), ONE_ACK).await } else { Ok(()) }
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
        let published_at = Timestamp::new(info.published).ok();
        let message = message.message;
        let receipt = Receipt {
            ack: message.reply.clone()?,
            ack_wait: terms.ack_wait,
            clock: Arc::clone(&terms.clock),
            confirmed: AtomicU64::new(terms.clock.now()),
        };
        Some(Self {
            kind: terms.kind,
            sequence,
            deliveries,
            published_at,
            message,
            receipt: Some(receipt),
            returner: terms.returner.clone(),
            _slot: slot,
        })
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

    /// Keeps the message ours while `work` runs: the heartbeat is polled in the same task and ends with it.
    pub(crate) async fn held<T>(
        &self,
        client: &Client,
        metrics: &Metrics,
        work: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.beat(client, metrics) => match never {},
        }
    }

    async fn beat(&self, client: &Client, metrics: &Metrics) -> Infallible {
        let Some(receipt) = &self.receipt else { return std::future::pending().await };
        // Two beats may be lost before the server gives the message to someone else.
        let every = receipt.ack_wait / 3;
        let mut due = Instant::now() + every;
        loop {
            tokio::time::sleep_until(due).await;
            due = Instant::now() + every;
            // A confirmed beat proves the connection; what counts is when it was sent.
            let sent = receipt.clock.now();
            match receipt.send(client, AckKind::Progress, every).await {
                Ok(()) => receipt.confirmed.store(sent, Ordering::Relaxed),
                Err(error) => {
                    metrics.heartbeat_failures.get_or_create(&KindLabel::of(self.kind)).inc();
                    debug!(sequence = self.sequence, %error, "Heartbeat not confirmed.");
                }
            }
        }
    }

    /// Ends the delivery. Waits until the server says so: an acknowledgement lost on the way means a redelivery.
    pub(crate) async fn settle(mut self, client: &Client, settlement: Settlement) -> Result<(), AckError> {
        let Some(receipt) = self.receipt.take() else { return Ok(()) };
        let verb = match settlement {
            Settlement::LeaveAlone => return Ok(()),
            Settlement::Done => AckKind::Ack,
            Settlement::Again(delay) => AckKind::Nak(Some(delay)),
        };
        let mut waits = Waits::within(FIRST_WAIT, LONGEST_WAIT, receipt.ack_wait);
        loop {
            let error = match receipt.send(client, verb, ONE_ACK).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Some(wait) = waits.next_wait() else { return Err(error) };
            tokio::time::sleep(wait).await;
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            self.returner.take_back(self.kind, receipt);
        }
    }
}
