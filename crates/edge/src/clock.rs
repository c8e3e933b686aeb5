//! The node's clock, which refuses to answer while it is behind a time that it has shown before.

use std::sync::atomic::{AtomicI64, Ordering};

use time::OffsetDateTime;

/// Corrections of the clock by less than this are not held against it, in microseconds.
const TOLERANCE: i64 = 1_000_000;

/// The clock went back, so it cannot tell whether a lease has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the clock of this node went back; calls are denied until it has caught up")]
pub struct ClockMovedBack;

/// Tells the time in microseconds since 1970.
#[derive(Debug, Default)]
pub struct Clock {
    latest: AtomicI64,
    /// Added to the time of the system, by tests.
    shift: AtomicI64,
}

impl Clock {
    /// Returns the time. Fails while it is earlier than one that was returned before.
    pub fn now(&self) -> Result<i64, ClockMovedBack> {
        let now = self.wall();
        let latest = self.latest.fetch_max(now, Ordering::Relaxed);
        if now < latest.saturating_sub(TOLERANCE) { Err(ClockMovedBack) } else { Ok(now.max(latest)) }
    }

    /// Returns the latest known time, for records. It never goes back.
    pub(crate) fn latest(&self) -> i64 {
        let now = self.wall();
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }

    /// Records a time that was recorded by an earlier process.
    pub(crate) fn note(&self, recorded: i64) {
        self.latest.fetch_max(recorded, Ordering::Relaxed);
    }

    /// Sets the clock forward or back, for tests.
    #[cfg(debug_assertions)]
    pub fn shift(&self, micros: i64) {
        self.shift.fetch_add(micros, Ordering::Relaxed);
    }

    fn wall(&self) -> i64 {
        let now = OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000;
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        now.saturating_add(self.shift.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_went_back_returns_no_time() {
        let clock = Clock::default();
        let first = clock.now().unwrap();
        clock.shift(-500_000);
        assert!(clock.now().unwrap() >= first, "a small correction is not seen");
        clock.shift(-5_000_000);
        assert_eq!(clock.now(), Err(ClockMovedBack));
        clock.shift(10_000_000);
        assert!(clock.now().unwrap() > first);
    }
}
