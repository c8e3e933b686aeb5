//! How long a lease may be used, by the clock and by the time since it was received.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use policy::{Lease, LeaseStanding};

use crate::clock::Clock;

/// A verified lease, and when this node received it.
#[derive(Clone, Debug)]
pub(crate) struct Validity {
    pub(crate) lease: Lease,
    pub(crate) text: Arc<str>,
    /// Expiry by the clock of this node, in microseconds since 1970. The gateway's clock may differ: the
    /// lifetime counts from when the lease was received.
    expires_at: i64,
    /// How long it may be used from `since` on, whatever the clock says.
    left: Duration,
    since: Instant,
}

impl Validity {
    /// Counts the lifetime of a lease from `at`, when this node received it, possibly in an earlier process.
    pub(crate) fn received(lease: Lease, text: Arc<str>, at: i64, now: i64) -> Self {
        let lifetime = lease.expires_at.saturating_sub(lease.not_before).max(0);
        let expires_at = at.saturating_add(lifetime);
        let left = u64::try_from(expires_at.saturating_sub(now)).unwrap_or_default();
        let left = Duration::from_micros(left).min(Duration::from_micros(lifetime.unsigned_abs()));
        Self { lease, text, expires_at, left, since: Instant::now() }
    }

    /// Returns the standing of the lease now.
    pub(crate) fn standing(&self, clock: &Clock) -> LeaseStanding {
        if self.is_valid(clock) {
            LeaseStanding::Valid(self.lease.clone())
        } else {
            LeaseStanding::Expired(self.lease.clone())
        }
    }

    pub(crate) fn is_valid(&self, clock: &Clock) -> bool {
        self.since.elapsed() < self.left && clock.now().is_ok_and(|now| now < self.expires_at)
    }

    /// Returns the time until the renewal is due: half of what remained on receipt. Zero if it is due.
    pub(crate) fn until_renewal(&self) -> Duration {
        (self.left / 2).saturating_sub(self.since.elapsed())
    }

    /// Returns how long the lease can still be used.
    pub(crate) fn remaining(&self) -> Duration {
        self.left.saturating_sub(self.since.elapsed())
    }
}
