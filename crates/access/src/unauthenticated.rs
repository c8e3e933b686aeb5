//! Limits the request rate of unauthenticated clients by address, and counts their refused requests in the
//! audit.
//!
//! A caller with a valid token is never limited because of other clients at its address: the hashes of all
//! valid tokens and sessions are in memory, so that recognising one needs no query.

mod known_secrets;
mod origin;
mod rate_limits;
mod refusals;

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tracing::{error, warn};

pub use self::origin::Origin;
use self::{known_secrets::KnownSecrets, rate_limits::RateLimits, refusals::RefusalCounts};
use audit::{Announcement, Ledger, Record, Unavailable};
use store::{Store, clock};

use crate::tokens;

/// The burst is the number of requests that the rate allows in this many seconds.
const BURST_SECONDS: u32 = 5;
/// Attempts to sign in to the console: a burst, then one in three seconds.
const LOGIN_BURST: f64 = 20.0;
const LOGINS_PER_SECOND: f64 = 1.0 / 3.0;

/// Limits of clients without a valid token.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Requests per second from one address; the burst is five times as large.
    pub per_second: u32,
    /// How often the refused requests of one address get an audit row.
    pub report_every: Duration,
}

/// Why a request was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has a secret that was valid when the hashes were loaded.
    Known,
    /// Its address is within the rate limit.
    Unproven,
}

/// How long a client has to wait before its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(pub Duration);

impl RetryAfter {
    /// Returns whole seconds, at least one.
    pub fn seconds(self) -> u64 {
        self.0.as_secs().saturating_add(1)
    }
}

/// Admits or refuses requests by their address, and records refusals.
#[derive(Debug)]
pub struct UnauthenticatedLimiter {
    store: Store,
    ledger: Ledger,
    known: KnownSecrets,
    per_second: AtomicU32,
    requests: RateLimits,
    logins: RateLimits,
    refusals: RefusalCounts,
}

impl UnauthenticatedLimiter {
    pub fn new(store: Store, ledger: Ledger, settings: Settings) -> Self {
        Self {
            store,
            ledger,
            known: KnownSecrets::default(),
            per_second: AtomicU32::new(settings.per_second),
            requests: RateLimits::default(),
            logins: RateLimits::default(),
            refusals: RefusalCounts::new(settings.report_every),
        }
    }

    pub fn reload(&self, settings: Settings) {
        self.per_second.store(settings.per_second, Ordering::Relaxed);
    }

    /// Admits a request, or returns how long its sender has to wait. A request with a valid secret is always
    /// admitted.
    pub async fn admit(&self, peer: IpAddr, secrets: &[&str]) -> Result<Admission, RetryAfter> {
        self.admit_with(&self.requests, self.quota(), peer, secrets).await
    }

    /// Returns the rate per second and the burst.
    fn quota(&self) -> (f64, f64) {
        let per_second = self.per_second.load(Ordering::Relaxed);
        (f64::from(per_second), f64::from(per_second.saturating_mul(BURST_SECONDS)))
    }

    /// Records that the store has confirmed a secret: its holder is not limited by address from now on, and
    /// the request that was counted against the address is refunded.
    pub fn mark_valid(&self, peer: IpAddr, secret: &str) {
        let hash = tokens::hash(secret);
        if !self.known.contains_any(std::slice::from_ref(&hash)) {
            self.known.insert(hash);
            self.requests.give_back(Origin::from(peer), self.quota().1);
        }
    }

    /// Like [`UnauthenticatedLimiter::admit`], for attempts to sign in to the console.
    pub async fn admit_login(&self, peer: IpAddr, secret: &str) -> Result<Admission, RetryAfter> {
        self.admit_with(&self.logins, (LOGINS_PER_SECOND, LOGIN_BURST), peer, &[secret]).await
    }

    async fn admit_with(
        &self,
        limits: &RateLimits,
        (per_second, burst): (f64, f64),
        peer: IpAddr,
        secrets: &[&str],
    ) -> Result<Admission, RetryAfter> {
        let hashes: Vec<String> = secrets.iter().map(|secret| tokens::hash(secret)).collect();
        if self.known.contains_any(&hashes) {
            self.known.refresh_if_stale(&self.store).await;
            if self.known.contains_any(&hashes) {
                return Ok(Admission::Known);
            }
        }
        let taken = limits.take(Origin::from(peer), per_second, burst, Instant::now());
        if taken.is_err() && !hashes.is_empty() {
            // The secret may be newer than the hashes in memory. The refresh itself is limited, however many
            // clients ask.
            self.known.refresh(&self.store).await;
            if self.known.contains_any(&hashes) {
                return Ok(Admission::Known);
            }
        }
        taken.map(|()| Admission::Unproven)
    }

    /// Records a refused request without a valid token. The first of an address and error type gets its own
    /// row, later ones are counted.
    pub async fn record_refusal(
        &self,
        peer: IpAddr,
        record: Record,
        error_type: &'static str,
    ) -> Result<(), Unavailable> {
        match self.refusals.count(Origin::from(peer), record, error_type, clock::now()) {
            Some(record) => self.ledger.end(record, Announcement::None).await.map_err(|_| Unavailable),
            None => Ok(()),
        }
    }

    /// Writes a row for each count whose interval has ended.
    pub async fn report(&self) {
        self.write(self.refusals.due(clock::now())).await;
    }

    /// Writes a row for each count, at shutdown.
    pub async fn report_all(&self) {
        self.write(self.refusals.take_all(clock::now())).await;
    }

    async fn write(&self, records: Vec<Record>) {
        for record in records {
            warn!(from = record.subject, refused = record.tool, "Requests without a valid token rejected.");
            if self.ledger.end(record, Announcement::None).await.is_err() {
                error!("Count of rejected requests not recorded.");
            }
        }
    }
}
