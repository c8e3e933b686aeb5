//! Limits by API key, and by address for clients without a valid one.

mod by_address;

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::StateInformationMiddleware,
    state::keyed::DashMapStateStore,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::by_address::ByAddress;
use crate::{config, error::ApiError};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit-requests");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining-requests");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset-requests");
/// The burst of an address is what its rate allows in this many seconds.
const BURST_SECONDS: u32 = 5;

type ByKey = RateLimiter<String, DashMapStateStore<String>, DefaultClock, StateInformationMiddleware>;

/// The limits of this process.
#[derive(Debug)]
pub(crate) struct RateLimits {
    settings: config::RateLimits,
    by_key: ByKey,
    by_address: ByAddress,
    streams: Arc<Semaphore>,
}

/// The remaining quota of a key, for the headers of a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    limit: u32,
    remaining: u32,
}

impl RateLimits {
    pub(crate) fn new(settings: config::RateLimits, max_streams: usize) -> Self {
        let per_minute = non_zero(settings.requests_per_minute);
        let per_second = settings.unauthenticated_per_second.max(1);
        Self {
            settings,
            by_key: RateLimiter::dashmap(Quota::per_minute(per_minute)).with_middleware(),
            by_address: ByAddress::new(per_second, per_second.saturating_mul(BURST_SECONDS)),
            streams: Arc::new(Semaphore::new(max_streams)),
        }
    }

    /// Counts a request of a key.
    pub(crate) fn count_request(&self, key_id: &str) -> Result<Budget, ApiError> {
        let limit = self.settings.requests_per_minute;
        match self.by_key.check_key(&key_id.to_owned()) {
            Ok(state) => Ok(Budget { limit, remaining: state.remaining_burst_capacity() }),
            Err(until) => {
                let wait = until.wait_time_from(DefaultClock::default().now());
                let message =
                    format!("This key may make {limit} requests a minute; try again in {wait:.1?}.");
                Err(too_many(message).retry_in(wait))
            }
        }
    }

    /// Returns the budget of a key that has used it up.
    pub(crate) fn no_budget(&self) -> Budget {
        Budget { limit: self.settings.requests_per_minute, remaining: 0 }
    }

    /// Counts a request whose key is not known to be valid against its address.
    pub(crate) fn count_unauthenticated(&self, address: IpAddr) -> Result<(), ApiError> {
        self.by_address.take(origin(address), Instant::now()).map_err(|wait| {
            too_many("Too many requests without a valid API key from this address.").retry_in(wait)
        })
    }

    /// Takes back that a request was counted against its address: its key has turned out to be valid.
    pub(crate) fn refund_unauthenticated(&self, address: IpAddr) {
        self.by_address.give_back(origin(address));
    }

    /// Returns the right to one more stream.
    pub(crate) fn begin_stream(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.streams.clone().try_acquire_owned().map_err(|_| {
            let message = "All streams of this orchestrator are in use; repeat the request.";
            ApiError::unavailable("too_many_streams", message)
        })
    }

    /// Removes idle keys and addresses.
    pub(crate) fn drop_idle(&self) {
        self.by_key.retain_recent();
        self.by_address.drop_idle(Instant::now());
    }
}

impl Budget {
    /// Writes the headers that OpenAI's clients know.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let used = self.limit.saturating_sub(self.remaining);
        let reset = Duration::from_secs(60).mul_f64(f64::from(used) / f64::from(self.limit.max(1)));
        headers.insert(LIMIT, HeaderValue::from(self.limit));
        headers.insert(REMAINING, HeaderValue::from(self.remaining));
        if let Ok(reset) = HeaderValue::try_from(format!("{}ms", reset.as_millis())) {
            headers.insert(RESET, reset);
        }
    }
}

fn too_many(message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
}

/// A client with an IPv6 address usually has a whole /64.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

fn non_zero(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> RateLimits {
        let settings =
            config::RateLimits { requests_per_minute: 3, concurrent_turns: 2, unauthenticated_per_second: 1 };
        RateLimits::new(settings, 1)
    }

    #[test]
    fn a_key_is_limited_alone() {
        let limits = limits();
        let budgets: Vec<u32> = (0..3).map(|_| limits.count_request("a").unwrap().remaining).collect();
        assert_eq!(budgets, [2, 1, 0]);
        let refused = limits.count_request("a").unwrap_err();
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.retry_after.is_some_and(|wait| wait > Duration::ZERO));
        assert!(limits.count_request("b").is_ok());
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let limits = limits();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for _ in 0..5 {
            limits.count_unauthenticated(address("2001:db8::1")).unwrap();
        }
        assert!(limits.count_unauthenticated(address("2001:db8::2")).is_err());
        assert!(limits.count_unauthenticated(address("2001:db8:0:1::2")).is_ok());
        assert!(limits.count_unauthenticated(address("127.0.0.1")).is_ok());
    }

    #[test]
    fn requests_whose_key_is_valid_do_not_count_against_their_network() {
        let limits = limits();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for _ in 0..50 {
            limits.count_unauthenticated(address("2001:db8::1")).unwrap();
            limits.refund_unauthenticated(address("2001:db8::1"));
        }
        let counted = (0..50).filter(|_| limits.count_unauthenticated(address("2001:db8::2")).is_ok());
        assert_eq!(counted.count(), 5);
    }
}
