//! The right to settle one delivered message.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, jetstream::AckKind};
use broker::{AckError, retry::RetryDelays};
use tokio::time::Instant;

const ACK_TIMEOUT: Duration = Duration::from_secs(2);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The acknowledgement subject of a message, and when the server last confirmed the delivery.
#[derive(Debug)]
pub(crate) struct Receipt {
    ack: async_nats::Subject,
    pub(crate) ack_wait: Duration,
    clock: Arc<Clock>,
    /// When the server last confirmed this delivery, in milliseconds of `clock`.
    confirmed_at: AtomicU64,
    /// Redelivery delay if the message is handed back; `None` for none.
    pub(crate) return_delay: Option<Duration>,
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
    /// Creates the receipt of a message that has just arrived.
    pub(crate) fn new(ack: async_nats::Subject, ack_wait: Duration, clock: &Arc<Clock>) -> Self {
        let confirmed_at = AtomicU64::new(clock.now());
        Self { ack, ack_wait, clock: Arc::clone(clock), confirmed_at, return_delay: None }
    }

    /// Returns whether `ack_wait` has not expired, so that the server cannot have redelivered the message.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.time_left().is_zero()
    }

    /// Returns how long the server still waits, as far as it has confirmed that. Zero: it may have
    /// redelivered the message.
    pub(crate) fn time_left(&self) -> Duration {
        let age = self.clock.now().saturating_sub(self.confirmed_at.load(Ordering::Relaxed));
        self.ack_wait.saturating_sub(Duration::from_millis(age))
    }

    async fn send(&self, client: &Client, verb: AckKind, within: Duration) -> Result<(), AckError> {
        broker::confirm(client, &self.ack, verb.into(), within).await
    }

    /// Sends a heartbeat. Fails with [`AckError::Stale`] if `ack_wait` has expired.
    pub(crate) async fn extend(&self, client: &Client) -> Result<(), AckError> {
        // The server confirms a heartbeat to any sender, so a late one does not prove ownership.
        if !self.is_fresh() {
            return Err(AckError::Stale);
        }
        // `ack_wait` restarts when the server receives the heartbeat, so the time of sending is the safe
        // bound.
        let sent = self.clock.now();
        self.send(client, AckKind::Progress, self.ack_wait / 3).await?;
        self.confirmed_at.store(sent, Ordering::Relaxed);
        Ok(())
    }

    /// Settles the message and waits for the server to confirm it.
    pub(crate) async fn settle(&self, client: &Client, verb: AckKind) -> Result<(), AckError> {
        match self.send(client, verb, ACK_TIMEOUT).await {
            Ok(()) => Ok(()),
            // Boxed to keep the common path small.
            Err(error) => Box::pin(self.send_again(client, verb, error)).await,
        }
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
    pub(crate) async fn hand_back(&self, client: &Client, verb: AckKind) -> Result<(), AckError> {
        if self.is_fresh() { self.send(client, verb, ACK_TIMEOUT).await } else { Ok(()) }
    }
}
