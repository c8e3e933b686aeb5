//! How recently it was confirmed that this process owns a chain.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// An effect may follow without another read if the stream confirmed the tail within this time. To interfere,
/// another process would have to claim the chain and act on it in that time.
pub(crate) const TAIL_CONFIRMATION_LIFETIME: Duration = Duration::from_millis(100);

/// When the ownership of a chain was last confirmed.
#[derive(Debug)]
pub struct Ownership {
    since: Instant,
    /// How long a confirmation of ownership stays valid.
    fresh_for: Duration,
    /// When ownership was last confirmed, in milliseconds since `since`.
    owned_at: AtomicU64,
    /// When the stream last confirmed that the chain ends with our own entry, in milliseconds since `since`.
    tail_confirmed_at: AtomicU64,
}

impl Ownership {
    /// Records that the chain was claimed with a request sent at `since`. A confirmation is valid for
    /// two thirds of `ack_wait`; the last third is left for what was started.
    pub fn new(since: Instant, ack_wait: Duration) -> Self {
        Self {
            since,
            fresh_for: ack_wait * 2 / 3,
            owned_at: AtomicU64::new(0),
            tail_confirmed_at: AtomicU64::new(0),
        }
    }

    /// Returns whether no other process can have taken over, judging by the last confirmation.
    pub fn is_fresh(&self) -> bool {
        let age = self.millis(Instant::now()).saturating_sub(self.owned_at.load(Ordering::Relaxed));
        Duration::from_millis(age) < self.fresh_for
    }

    /// Records that the server confirmed the delivery, and so the ownership of the chain, with a request that
    /// was sent at `at`.
    pub fn confirm_since(&self, at: Instant) {
        self.owned_at.fetch_max(self.millis(at), Ordering::Relaxed);
    }

    /// Returns whether the stream confirmed a moment ago that the chain ends with our own entry. A heartbeat
    /// is no proof of that: the server confirms one to any sender.
    pub fn is_tail_confirmed(&self) -> bool {
        let at = Duration::from_millis(self.tail_confirmed_at.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(at) < TAIL_CONFIRMATION_LIFETIME
    }

    /// Records that the stream confirmed, with a request that was sent at `at`, that the chain ends with our
    /// own entry.
    pub fn set_tail_confirmed(&self, at: Instant) {
        self.tail_confirmed_at.fetch_max(self.millis(at), Ordering::Relaxed);
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
    }
}
