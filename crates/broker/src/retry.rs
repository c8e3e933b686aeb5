//! How long to wait before trying again. The `backoff` crate is used for its exponential policy and here
//! alone, so that replacing it is a change of one file.

use std::time::Duration;

use backoff::{ExponentialBackoff, ExponentialBackoffBuilder, backoff::Backoff};
use tokio::time::Instant;

/// Waits that double, with jitter, from `first` up to `longest`.
#[derive(Debug)]
pub struct Waits {
    policy: ExponentialBackoff,
    until: Option<Instant>,
}

impl Waits {
    /// Waits without end.
    pub fn forever(first: Duration, longest: Duration) -> Self {
        Self::build(first, longest, None)
    }

    /// Waits until `within` has passed since now; then there is no next one. The last wait ends just then, so the whole
    /// time is used.
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

    pub fn next_wait(&mut self) -> Option<Duration> {
        let wait = self.policy.next_backoff()?;
        let Some(until) = self.until else { return Some(wait) };
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| wait.min(left))
    }

    /// Starts over with the first, shortest wait.
    pub fn reset(&mut self) {
        self.policy.reset();
    }
}

/// The wait before the next delivery of something that was tried `attempt` times.
pub fn delay(attempt: u32, first: Duration, longest: Duration) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
    let mut waits = Waits::forever(doubled.min(longest), longest);
    waits.next_wait().unwrap_or(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_stay_in_bounds_and_end() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut waits = Waits::forever(first, longest);
        let found: Vec<_> = (0..20).filter_map(|_| waits.next_wait()).collect();
        assert_eq!(found.len(), 20);
        assert!(
            found.iter().all(|wait| *wait >= first.mul_f64(0.69) && *wait <= longest.mul_f64(1.31)),
            "{found:?}"
        );
        assert!(found[19] > found[0]);
        let mut none_left = Waits::within(first, longest, Duration::ZERO);
        assert_eq!(none_left.next_wait(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_whole_time_is_used() {
        let (started, within) = (Instant::now(), Duration::from_secs(10));
        let mut waits = Waits::within(Duration::from_millis(250), Duration::from_secs(4), within);
        while let Some(wait) = waits.next_wait() {
            tokio::time::sleep(wait).await;
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
