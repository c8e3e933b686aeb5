//! Callers without a good token: paced by where they come from before anything is read or written, and counted in the audit.
//!
//! A caller with a good token is never slowed down by strangers at its address: the hashes of all good tokens and sessions are in
//! memory, so that telling one from the other takes no look at the store.

mod known; // the hashes of good tokens and sessions
mod origin; // where a caller comes from
mod pace; // how often somebody may ask, in a bounded table
mod tally; // refusals, as few audit rows

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use tracing::{error, warn};

pub(crate) use self::origin::Origin;
use self::{known::Known, pace::Paces, tally::Tally};
use crate::{
    audit::{Ledger, Record, Unavailable, WasBegun},
    clock, config,
    store::Store,
    tokens,
};

/// A burst is what arrives in this many seconds.
const BURST_SECONDS: u32 = 5;
/// Guesses at the console's sign-in: so many at once, then one in three seconds.
const LOGIN_BURST: f64 = 20.0;
const LOGINS_PER_SECOND: f64 = 1.0 / 3.0;

/// How a request was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// With a secret that was good a moment ago.
    Known,
    /// Within the pace of its address.
    Unproven,
}

/// How long a caller has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooFast(pub(crate) Duration);

impl TooFast {
    /// In whole seconds, at least one.
    pub(crate) fn seconds(self) -> u64 {
        self.0.as_secs().saturating_add(1)
    }
}

#[derive(Debug)]
pub(crate) struct Strangers {
    store: Store,
    ledger: Ledger,
    known: Known,
    per_second: AtomicU32,
    requests: Paces,
    logins: Paces,
    tally: Tally,
}

impl Strangers {
    pub(crate) fn new(store: Store, ledger: Ledger, settings: config::Strangers) -> Self {
        Self {
            store,
            ledger,
            known: Known::default(),
            per_second: AtomicU32::new(settings.per_second),
            requests: Paces::default(),
            logins: Paces::default(),
            tally: Tally::new(settings.report_every),
        }
    }

    pub(crate) fn reload(&self, settings: config::Strangers) {
        self.per_second.store(settings.per_second, Ordering::Relaxed);
    }

    /// Lets a request in, or says how long its sender has to wait. A secret that is good is always let in.
    pub(crate) async fn admit(&self, peer: IpAddr, secrets: &[&str]) -> Result<Admitted, TooFast> {
        self.let_in(&self.requests, self.quota(), peer, secrets).await
    }

    /// Requests in a second, and at once.
    fn quota(&self) -> (f64, f64) {
        let per_second = self.per_second.load(Ordering::Relaxed);
        (f64::from(per_second), f64::from(per_second.saturating_mul(BURST_SECONDS)))
    }

    /// Remembers that a secret is good, so that its holder has no pace by address from now on, and gives back what its first
    /// request took.
    pub(crate) fn proven(&self, peer: IpAddr, secret: &str) {
        let hash = tokens::hash(secret);
        if !self.known.has_any(std::slice::from_ref(&hash)) {
            self.known.learn(hash);
            self.requests.give_back(Origin::from(peer), self.quota().1);
        }
    }

    /// As [`Strangers::admit`], for those who try to sign in to the console.
    pub(crate) async fn admit_login(&self, peer: IpAddr, secret: &str) -> Result<Admitted, TooFast> {
        self.let_in(&self.logins, (LOGINS_PER_SECOND, LOGIN_BURST), peer, &[secret]).await
    }

    async fn let_in(
        &self,
        paces: &Paces,
        (per_second, burst): (f64, f64),
        peer: IpAddr,
        secrets: &[&str],
    ) -> Result<Admitted, TooFast> {
        let hashes: Vec<String> = secrets.iter().map(|secret| tokens::hash(secret)).collect();
        if self.known.has_any(&hashes) {
            self.known.keep_fresh(&self.store).await;
            if self.known.has_any(&hashes) {
                return Ok(Admitted::Known);
            }
        }
        let taken = paces.take(Origin::from(peer), per_second, burst, Instant::now());
        if taken.is_err() && !hashes.is_empty() {
            // It may be newer than what is in memory. However many ask, the store is looked at once in a while.
            self.known.renew(&self.store).await;
            if self.known.has_any(&hashes) {
                return Ok(Admitted::Known);
            }
        }
        taken.map(|()| Admitted::Unproven)
    }

    /// Records that a request without a good token was refused: the first of its kind by a row of its own, the others by their
    /// number.
    pub(crate) async fn refused(
        &self,
        peer: IpAddr,
        record: Record,
        error_type: &'static str,
    ) -> Result<(), Unavailable> {
        match self.tally.note(Origin::from(peer), record, error_type, clock::now()) {
            Some(record) => self.ledger.end(record, WasBegun::Not).await.map_err(|_| Unavailable),
            None => Ok(()),
        }
    }

    /// Writes the numbers that are due.
    pub(crate) async fn report(&self) {
        self.write(self.tally.due(clock::now())).await;
    }

    /// Writes all numbers, before the end.
    pub(crate) async fn report_all(&self) {
        self.write(self.tally.take_all(clock::now())).await;
    }

    async fn write(&self, records: Vec<Record>) {
        for record in records {
            warn!(from = record.subject, refused = record.tool, "Requests without a valid token rejected.");
            if self.ledger.end(record, WasBegun::Not).await.is_err() {
                error!("Count of rejected requests not recorded.");
            }
        }
    }
}
