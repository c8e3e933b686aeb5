//! Delays between retries. The `backoff` crate is used only here, so that replacing it changes one file.

use std::time::Duration;

use backoff::{ExponentialBackoff, ExponentialBackoffBuilder, backoff::Backoff};
use tokio::time::Instant;

/// Delays that double, with jitter, from `first` up to `longest`.
#[derive(Debug)]
pub struct RetryDelays {
    policy: ExponentialBackoff,
    until: Option<Instant>,
}

impl RetryDelays {
    /// Creates delays without a time limit.
    pub fn forever(first: Duration, longest: Duration) -> Self {
        Self::build(first, longest, None)
    }

    /// Creates delays that end when `within` has passed from now. The last delay is cut to end at that
    /// moment, so the whole time is used.
    pub fn within(first: Duration, longest: Duration, within: Duration) -> Self {
        Self::build(first, longest, Instant::now().checked_add(within))
    }

    fn build(first: Duration, longest: Duration, until: Option<Instant>) -> Self {
        let policy = ExponentialBackoffBuilder::new()
            .with_initial_interval(first)
            .with_max_interval(longest)
            .with_multiplier(2.0)
            .with_randomization_factor(0.3)
            .with_max_elapsed_time(None)
            .build();
        Self { policy, until }
    }

    /// Returns the next delay, or `None` when the time limit has passed.
    pub fn next_delay(&mut self) -> Option<Duration> {
        let delay = self.policy.next_backoff()?;
        let Some(until) = self.until else { return Some(delay) };
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| delay.min(left))
    }

    /// Starts over with the first, shortest delay.
    pub fn reset(&mut self) {
        self.policy.reset();
    }
}

/// Returns the delay before the next attempt of something that was tried `attempt` times.
pub fn delay(attempt: u32, first: Duration, longest: Duration) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
    let mut delays = RetryDelays::forever(doubled.min(longest), longest);
    delays.next_delay().unwrap_or(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_stay_in_bounds_and_end() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut delays = RetryDelays::forever(first, longest);
        let found: Vec<_> = (0..20).filter_map(|_| delays.next_delay()).collect();
        assert_eq!(found.len(), 20);
        assert!(
            found.iter().all(|delay| *delay >= first.mul_f64(0.69) && *delay <= longest.mul_f64(1.31)),
            "{found:?}"
        );
        assert!(found[19] > found[0]);
        let mut none_left = RetryDelays::within(first, longest, Duration::ZERO);
        assert_eq!(none_left.next_delay(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn delays_use_the_whole_time_limit() {
        let (started, within) = (Instant::now(), Duration::from_secs(10));
        let mut delays = RetryDelays::within(Duration::from_millis(250), Duration::from_secs(4), within);
        while let Some(delay) = delays.next_delay() {
            tokio::time::sleep(delay).await;
        }
        let took = started.elapsed();
        assert!(took >= within && took < within + Duration::from_millis(10), "{took:?}");
    }

    #[test]
    fn delays_double_with_each_attempt_and_are_capped() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let near = |attempt, seconds: f64| {
            let found = delay(attempt, first, longest).as_secs_f64();
            assert!((seconds * 0.69..=seconds * 1.31).contains(&found), "attempt {attempt}: {found}");
        };
        near(1, 1.0);
        near(2, 2.0);
        near(4, 8.0);
        near(60, 30.0);
    }
}
