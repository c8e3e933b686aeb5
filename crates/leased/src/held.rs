//! A lease that a process holds.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use policy::{InvalidLease, Lease};
use time::OffsetDateTime;

/// A lease is renewed when less than this part of its lifetime is left.
const RENEW_BELOW: u32 = 3;

/// The lease of one handoff or job. Its content does not change; its text does, with every renewal.
#[derive(Debug)]
pub struct HeldLease {
    pub lease: Lease,
    current: Mutex<Current>,
    /// Held while the lease is renewed: one renewal at a time.
    pub(crate) renewing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Current {
    text: Arc<str>,
    lifetime: Duration,
    /// How much of the lifetime was left on receipt.
    left: Duration,
    received: Instant,
    /// When it was received, by the clock of this machine in microseconds since 1970.
    received_at: i64,
}

impl HeldLease {
    /// Reads the signed text of a lease, without verifying it.
    pub fn read(text: &str) -> Result<Self, InvalidLease> {
        let lease = Lease::read_unverified(text)?;
        // It may have waited in a queue. A clock that is wrong costs one renewal more, or a call that is made
        // again.
        let left = micros(lease.expires_at.saturating_sub(now()));
        let current = Current::new(text, &lease, left);
        Ok(Self { lease, current: current.into(), renewing: tokio::sync::Mutex::new(()) })
    }

    /// Returns the signed text as it was last renewed.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(&self.lock().text)
    }

    /// Returns whether the lease has to be renewed before it is used.
    pub fn is_due(&self) -> bool {
        let current = self.lock();
        current.left() <= current.lifetime / RENEW_BELOW
    }

    /// Returns how long it takes until half of the lifetime is over; zero if it is.
    pub fn until_half_life(&self) -> Duration {
        let current = self.lock();
        current.left().saturating_sub(current.lifetime / 2)
    }

    /// Replaces the text by a renewed one. One that cannot be read is ignored.
    pub(crate) fn replace(&self, text: &str) {
        if let Ok(renewed) = Lease::read_unverified(text) {
            *self.lock() = Current::new(text, &renewed, Duration::MAX);
        }
    }

    /// The value is never left half written, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// The lifetime is what the gateway's clock says. It counts from receipt, since the clock of this machine
    /// may differ.
    fn new(text: &str, lease: &Lease, left: Duration) -> Self {
        let lifetime = micros(lease.expires_at.saturating_sub(lease.not_before));
        let (left, received) = (left.min(lifetime), Instant::now());
        Self { text: text.into(), lifetime, left, received, received_at: now() }
    }

    /// Returns how much of the lifetime is left. The time that passed by the clock counts too, since the
    /// other one may stand still while the machine sleeps.
    fn left(&self) -> Duration {
        let by_clock = micros(now().saturating_sub(self.received_at));
        self.left.saturating_sub(self.received.elapsed().max(by_clock))
    }
}

/// Returns a difference of two times; none if it is negative.
fn micros(difference: i64) -> Duration {
    Duration::from_micros(u64::try_from(difference).unwrap_or_default())
}

/// Returns the current time in microseconds since 1970.
fn now() -> i64 {
    i64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}
