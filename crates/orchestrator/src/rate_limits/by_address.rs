//! Token buckets by address. Requests can be given back to them, which `governor` does not offer.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A token bucket for each address.
#[derive(Debug)]
pub(super) struct ByAddress {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    /// Requests that may still be made.
    left: f64,
    /// Time of the last refill.
    at: Instant,
}

impl ByAddress {
    /// `per_second` is at least one.
    pub(super) fn new(per_second: u32, burst: u32) -> Self {
        Self { per_second: f64::from(per_second), burst: f64::from(burst), buckets: Mutex::default() }
    }

    /// Takes one request from the bucket of an address, or returns how long its client has to wait.
    pub(super) fn take(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut buckets = self.lock();
        let bucket = buckets.entry(address).or_insert(Bucket { left: self.burst, at: now });
        bucket.refill(self.per_second, self.burst, now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        let missing = (1.0 - bucket.left) / self.per_second;
        Err(Duration::try_from_secs_f64(missing).unwrap_or(Duration::MAX))
    }

    /// Returns one request to the bucket of an address.
    pub(super) fn give_back(&self, address: IpAddr) {
        if let Some(bucket) = self.lock().get_mut(&address) {
            bucket.left = (bucket.left + 1.0).min(self.burst);
        }
    }

    /// Removes addresses whose bucket is full again.
    pub(super) fn drop_idle(&self, now: Instant) {
        self.lock().retain(|_, bucket| {
            bucket.refill(self.per_second, self.burst, now);
            bucket.left < self.burst
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn refill(&mut self, per_second: f64, burst: f64, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = since.mul_add(per_second, self.left).min(burst);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_gets_its_burst_and_then_its_rate() {
        let (buckets, now) = (ByAddress::new(2, 10), Instant::now());
        let (one, other) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from([10, 0, 0, 1]));
        let taken = |address, at| (0..100).filter(|_| buckets.take(address, at).is_ok()).count();
        assert_eq!((taken(one, now), taken(other, now)), (10, 10));
        let wait = buckets.take(one, now).unwrap_err();
        assert!(wait > Duration::ZERO && wait <= Duration::from_millis(500), "{wait:?}");
        assert_eq!(taken(one, now + Duration::from_secs(3)), 6);
        buckets.give_back(one);
        assert_eq!(taken(one, now + Duration::from_secs(3)), 1);
    }

    #[test]
    fn idle_addresses_are_removed() {
        let (buckets, now) = (ByAddress::new(2, 10), Instant::now());
        buckets.take(IpAddr::from(Ipv4Addr::LOCALHOST), now).unwrap();
        buckets.drop_idle(now);
        assert_eq!(buckets.lock().len(), 1);
        buckets.drop_idle(now + Duration::from_secs(1));
        assert_eq!(buckets.lock().len(), 0);
    }
}
