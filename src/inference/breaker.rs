//! An outage must not be paid for in deliveries: when nobody answers, no more work is taken up, until someone does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use broker::retry::Waits;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::telemetry::{Blocker, Health};

/// So many failures in a row, with no success between them, are an outage.
const OUTAGE: u32 = 5;
const FIRST_LOOK: Duration = Duration::from_secs(1);
const SELDOM_LOOK: Duration = Duration::from_secs(30);

/// Whether work may be taken up. Closed while any breaker is open.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Receiver<u32>);

/// Opens and closes the gate for one thing that is needed.
#[derive(Clone, Debug)]
pub(crate) struct Breaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    needed: Blocker,
    failures: AtomicU32,
    /// Whether there was an answer since it was last looked at.
    answered: AtomicBool,
    open: watch::Sender<bool>,
    closed_gates: watch::Sender<u32>,
    health: Arc<Health>,
}

impl Gate {
    pub(crate) fn new() -> (watch::Sender<u32>, Self) {
        let (sender, receiver) = watch::channel(0);
        (sender, Self(receiver))
    }

    /// Waits until work may be taken up.
    pub(crate) async fn opened(&mut self) {
        // The sender lives as long as the worker; without it nobody could close the gate either.
        drop(self.0.wait_for(|closed| *closed == 0).await);
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        *self.0.borrow() == 0
    }
}

impl Breaker {
    pub(crate) fn new(needed: Blocker, closed_gates: watch::Sender<u32>, health: Arc<Health>) -> Self {
        let (open, _) = watch::channel(false);
        Self(Arc::new(Inner {
            needed,
            failures: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            open,
            closed_gates,
            health,
        }))
    }

    pub(crate) fn succeeded(&self) {
        self.0.answered.store(true, Ordering::Relaxed);
        self.close();
    }

    fn close(&self) {
        self.0.failures.store(0, Ordering::Relaxed);
        if self.0.open.send_if_modified(|open| std::mem::replace(open, false)) {
            self.0.closed_gates.send_modify(|closed| *closed -= 1);
            self.0.health.clear(self.0.needed);
            info!(needed = ?self.0.needed, "Answers again; taking up work.");
        }
    }

    pub(crate) fn failed(&self, why: &str) {
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= OUTAGE && self.0.open.send_if_modified(|open| !std::mem::replace(open, true)) {
            self.0.closed_gates.send_modify(|closed| *closed += 1);
            self.0.health.block(self.0.needed, why.to_owned());
            warn!(needed = ?self.0.needed, why, failures, "An outage: no more work is taken up until it is over.");
        }
    }

    /// Ends when work may be taken up again, as far as this is concerned.
    pub(crate) async fn closed(&self) {
        // The sender lives in `self`, so this cannot fail.
        drop(self.0.open.subscribe().wait_for(|open| !*open).await);
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.open.borrow()
    }

    /// While the breaker is open, looks now and then whether someone is there again.
    pub(crate) async fn watch<F: Future<Output = bool>>(
        self,
        is_there: impl Fn() -> F,
        stop: CancellationToken,
    ) {
        let mut open = self.0.open.subscribe();
        let mut waits = Waits::forever(FIRST_LOOK, SELDOM_LOOK);
        loop {
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: it only looks.
                seen = open.wait_for(|open| *open) => if seen.is_err() { return },
            }
            // Not reset when someone was there and the next question failed all the same: then it is looked less often.
            if self.0.answered.swap(false, Ordering::Relaxed) {
                waits.reset();
            }
            let pause = waits.next_wait().unwrap_or(SELDOM_LOOK);
            if timeout(pause, stop.cancelled()).await.is_ok() {
                return;
            }
            if self.is_open() && is_there().await {
                self.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_close_the_gate_until_someone_is_there() {
        let health = Arc::new(Health::starting());
        let (closed, mut gate) = Gate::new();
        let breaker = Breaker::new(Blocker::Inference, closed, Arc::clone(&health));
        for _ in 0..4 {
            breaker.failed("refused");
        }
        breaker.succeeded();
        for _ in 0..4 {
            breaker.failed("refused");
        }
        assert!(gate.is_open(), "a success between them starts the count anew");
        breaker.failed("connection refused");
        breaker.failed("connection refused");
        assert!(!gate.is_open());
        assert!(health.why_not().contains(&"connection refused".to_owned()));

        let stop = CancellationToken::new();
        let looks = Arc::new(AtomicU32::new(0));
        let watching = breaker.watch(|| async { looks.fetch_add(1, Ordering::Relaxed) == 2 }, stop.clone());
        tokio::select! {
            () = watching => panic!("it watches until it is told to stop"),
            () = gate.opened() => {}
        }
        assert_eq!(looks.load(Ordering::Relaxed), 3);
        assert!(!health.why_not().contains(&"connection refused".to_owned()));
    }
}
