//! Intervals: a slot after every so many seconds.

use crate::{Error, SECOND_US};

pub const MIN_INTERVAL_SECONDS: u64 = 1;
pub const MAX_INTERVAL_SECONDS: u64 = 366 * 24 * 60 * 60;

/// A first slot, and one after each interval from there on. Instants are microseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) start: i64,
    every: i64,
}

impl Interval {
    pub(crate) fn new(every_seconds: u64, start: i64) -> Result<Self, Error> {
        if !(MIN_INTERVAL_SECONDS..=MAX_INTERVAL_SECONDS).contains(&every_seconds) {
            return Err(Error::Interval(MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS));
        }
        let every = i64::try_from(every_seconds).unwrap_or(i64::MAX).saturating_mul(SECOND_US);
        Ok(Self { start, every })
    }

    pub(crate) fn every_seconds(self) -> u64 {
        u64::try_from(self.every / SECOND_US).unwrap_or_default()
    }

    pub(crate) fn next_after(self, at: i64) -> Option<i64> {
        match self.latest_until(at) {
            Some(latest) => latest.checked_add(self.every),
            None => Some(self.start),
        }
    }

    pub(crate) fn latest_until(self, at: i64) -> Option<i64> {
        let since = at.checked_sub(self.start)?;
        (since >= 0).then(|| at - since % self.every)
    }

    /// Returns how many slots there are from one slot to another, both included.
    pub(crate) fn count(self, first: i64, last: i64) -> u64 {
        u64::try_from(last.saturating_sub(first) / self.every).unwrap_or_default().saturating_add(1)
    }

    /// Describes the interval in English.
    pub(crate) fn describe(self) -> String {
        let mut rest = self.every_seconds();
        let mut parts = Vec::new();
        for (size, one) in [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")] {
            let count = rest / size;
            rest %= size;
            match count {
                0 => {}
                1 => parts.push(format!("1 {one}")),
                _ => parts.push(format!("{count} {one}s")),
            }
        }
        format!("Every {}", parts.join(" "))
    }
}
