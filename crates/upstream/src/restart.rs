//! Restart delays for a process that ended. Pure; the time is an argument.

use std::time::{Duration, Instant};

/// A process that ran this long is considered to have started successfully.
const STABLE_AFTER: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Restarts {
    last: Option<Instant>,
    /// The number of consecutive starts after which the process ended early.
    short: u32,
    starts: u64,
}

impl Restarts {
    /// Returns the earliest time of the next start, given that the last process has ended by `now`.
    pub(crate) fn not_before(&self, now: Instant) -> Instant {
        match self.last {
            Some(last) if now.duration_since(last) < STABLE_AFTER => last + pause(self.short),
            _ => now,
        }
    }

    pub(crate) fn record_start(&mut self, now: Instant) {
        self.short = match self.last {
            Some(last) if now.duration_since(last) < STABLE_AFTER + pause(self.short) => {
                self.short.saturating_add(1)
            }
            _ => 0,
        };
        self.last = Some(now);
        self.starts += 1;
    }

    /// Returns the number of restarts, without the first start.
    pub(crate) fn count(&self) -> u64 {
        self.starts.saturating_sub(1)
    }
}

fn pause(short: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(short)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_at_once_is_restarted_with_growing_pauses() {
        let (mut restarts, mut now) = (Restarts::default(), Instant::now());
        assert_eq!(restarts.not_before(now), now, "the first start is immediate");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            restarts.record_start(now);
            let next = restarts.not_before(now);
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000, 30_000]);
        assert_eq!(restarts.count(), 11);
    }

    #[test]
    fn a_process_that_ran_long_is_restarted_at_once_and_resets_the_pause() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        for _ in 0..5 {
            restarts.record_start(start);
        }
        let later = start + Duration::from_secs(60);
        assert_eq!(restarts.not_before(later), later);
        restarts.record_start(later);
        assert_eq!(restarts.not_before(later), later + FIRST_PAUSE);
    }
}
