//! Token buckets by origin, in a table of bounded size.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{Origin, RetryAfter};

/// Origins with their own bucket. All others share one, so that the table stays small.
const MAX_ORIGINS: usize = 10_000;
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A token bucket for each origin.
#[derive(Debug, Default)]
pub(super) struct RateLimits(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    own: HashMap<Origin, Bucket>,
    shared: Option<Bucket>,
    swept: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Requests that may still be made.
    left: f64,
    /// Time of the last refill.
    at: Instant,
}

impl Bucket {
    fn refill(&mut self, per_second: f64, burst: f64, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = since.mul_add(per_second, self.left).min(burst);
        self.at = now;
    }
}

impl RateLimits {
    /// Takes one request from the bucket of the origin, or returns how long to wait for it.
    pub(super) fn take(
        &self,
        origin: Origin,
        per_second: f64,
        burst: f64,
        now: Instant,
    ) -> Result<(), RetryAfter> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = Bucket { left: burst, at: now };
        if !table.own.contains_key(&origin) && table.own.len() >= MAX_ORIGINS {
            table.sweep(per_second, burst, now);
        }
        let has_room = table.own.len() < MAX_ORIGINS;
        let bucket = if has_room || table.own.contains_key(&origin) {
            table.own.entry(origin).or_insert(full)
        } else {
            table.shared.get_or_insert(full)
        };
        bucket.refill(per_second, burst, now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - bucket.left) / per_second.max(f64::MIN_POSITIVE);
        Err(RetryAfter(Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX)))
    }

    /// Returns one request to the bucket of the origin, after its client has presented a valid token.
    pub(super) fn give_back(&self, origin: Origin, burst: f64) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = table.own.get_mut(&origin) {
            bucket.left = (bucket.left + 1.0).min(burst);
        }
    }
}

impl Table {
    /// Removes origins whose bucket is full again.
    fn sweep(&mut self, per_second: f64, burst: f64, now: Instant) {
        if self.swept.is_some_and(|swept| now.saturating_duration_since(swept) < SWEEP_INTERVAL) {
            return;
        }
        self.swept = Some(now);
        self.own.retain(|_, bucket| {
            bucket.refill(per_second, burst, now);
            bucket.left < burst
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn origin(number: u32) -> Origin {
        Origin::from(IpAddr::V4(Ipv4Addr::from(number)))
    }

    #[test]
    fn an_origin_gets_its_burst_and_then_its_rate() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        let ask = |origin, at| limits.take(origin, 2.0, 10.0, at).is_ok();
        assert_eq!((0..100).filter(|_| ask(origin(1), now)).count(), 10);
        assert!(ask(origin(2), now), "another origin has its own bucket");
        let later = now + Duration::from_secs(3);
        assert_eq!((0..100).filter(|_| ask(origin(1), later)).count(), 6);
        let wait = limits.take(origin(1), 2.0, 10.0, later).unwrap_err();
        assert!(wait.0 <= Duration::from_millis(500), "{wait:?}");
    }

    #[test]
    fn the_table_is_bounded_and_further_origins_share_one_bucket() {
        let (limits, now) = (RateLimits::default(), Instant::now());
        let many = u32::try_from(MAX_ORIGINS).unwrap() + 5_000;
        let admitted = (0..many).filter(|number| limits.take(origin(*number), 1.0, 5.0, now).is_ok()).count();
        assert_eq!(admitted, MAX_ORIGINS + 5);
        assert_eq!(limits.0.lock().unwrap().own.len(), MAX_ORIGINS);
        let later = now + Duration::from_secs(60);
        assert!(limits.take(origin(many), 1.0, 5.0, later).is_ok(), "idle origins were removed");
        assert!(limits.0.lock().unwrap().own.len() < 10);
    }
}
