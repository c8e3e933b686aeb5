//! A lease that a process holds.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use policy::{InvalidLease, Lease};
use time::OffsetDateTime;

/// A lease is renewed when less than this part of its lifetime is left.
const RENEW_BELOW: i64 = 3;

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
    expires_at: i64,
}

impl HeldLease {
    /// Reads the signed text of a lease, without verifying it.
    pub fn read(text: &str) -> Result<Self, InvalidLease> {
        let lease = Lease::read_unverified(text)?;
        let current = Current::new(text, lease.not_before, lease.expires_at);
        Ok(Self { lease, current: current.into(), renewing: tokio::sync::Mutex::new(()) })
    }

    /// Returns the signed text as it was last renewed.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(&self.lock().text)
    }

    /// Returns whether the lease has to be renewed before it is used.
    pub fn is_due(&self) -> bool {
        let current = self.lock();
        let margin = i64::try_from(current.lifetime.as_micros()).unwrap_or(i64::MAX) / RENEW_BELOW;
        now() >= current.expires_at.saturating_sub(margin)
    }

    /// Returns how long it takes until half of the lifetime is over; zero if it is.
    pub fn until_half_life(&self) -> Duration {
        let current = self.lock();
        let left = u64::try_from(current.expires_at.saturating_sub(now())).unwrap_or_default();
        Duration::from_micros(left).saturating_sub(current.lifetime / 2)
    }

    /// Replaces the text by a renewed one. One that cannot be read is ignored.
    pub(crate) fn replace(&self, text: &str) {
        if let Ok(renewed) = Lease::read_unverified(text) {
            *self.lock() = Current::new(text, now(), renewed.expires_at);
        }
    }

    /// The value is never left half written, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn new(text: &str, from: i64, expires_at: i64) -> Self {
        let lifetime = u64::try_from(expires_at.saturating_sub(from)).unwrap_or_default();
        Self { text: text.into(), lifetime: Duration::from_micros(lifetime), expires_at }
    }
}

/// Returns the current time in microseconds since 1970.
fn now() -> i64 {
    i64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}
