//! When a process that died is started again. Time comes in as an argument.

use std::time::{Duration, Instant};

/// One that lived this long did not die of being started.
const STABLE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Restarts {
    last: Option<Instant>,
    /// Starts in a row that did not last.
    short: u32,
    starts: u64,
}

impl Restarts {
    /// From when on it may be started, given that the last one is gone by `now`.
    pub(crate) fn not_before(&self, now: Instant) -> Instant {
        match self.last {
            Some(last) if now.duration_since(last) < STABLE => last + pause(self.short),
            _ => now,
        }
    }

    pub(crate) fn starts(&mut self, now: Instant) {
        self.short = match self.last {
            Some(last) if now.duration_since(last) < STABLE + pause(self.short) => {
                self.short.saturating_add(1)
            }
            _ => 0,
        };
        self.last = Some(now);
        self.starts += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.starts.saturating_sub(1)
    }
}

fn pause(short: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(short)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_dies_at_once_is_started_ever_more_seldom() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        assert_eq!(restarts.not_before(now), now, "the first at once");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            restarts.starts(now);
            let next = restarts.not_before(now);
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000]);
        assert_eq!(restarts.count(), 11);
    }

    #[test]
    fn one_that_lived_is_started_at_once_and_forgiven() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        for _ in 0..5 {
            restarts.starts(start);
        }
        let later = start + Duration::from_secs(60);
        assert_eq!(restarts.not_before(later), later);
        restarts.starts(later);
        assert_eq!(restarts.not_before(later), later + FIRST_PAUSE);
    }
}
