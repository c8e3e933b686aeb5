//! An outage must not cost deliveries: while something that every handoff needs is away, no more work is pulled.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use broker::retry::Waits;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::telemetry::{Blocker, Health};

/// This many failures in a row, with no success between them, are an outage.
const OUTAGE_FAILURES: u32 = 5;
/// So are failures alone for this long, however few: one handoff fails seldom.
const OUTAGE_TIME: Duration = Duration::from_secs(2);
const FIRST_PROBE: Duration = Duration::from_secs(1);
const LONGEST_PROBE_WAIT: Duration = Duration::from_secs(30);

/// Whether work may be pulled. Closed while any breaker is open.
#[derive(Clone, Debug)]
pub(crate) struct Gate(watch::Receiver<u32>);

/// Opens and closes the gate for one thing that is needed.
#[derive(Clone, Debug)]
pub(crate) struct Breaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    needed: Blocker,
    failures: AtomicU32,
    /// When the first of the failures in a row was.
    failing_since: Mutex<Option<Instant>>,
    /// Whether there was a success since the last probe.
    succeeded: AtomicBool,
    open: watch::Sender<bool>,
    closed_gates: watch::Sender<u32>,
    health: Arc<Health>,
}

impl Gate {
    pub(crate) fn new() -> (watch::Sender<u32>, Self) {
        let (sender, receiver) = watch::channel(0);
        (sender, Self(receiver))
    }

    /// Waits until work may be pulled.
    pub(crate) async fn opened(&mut self) {
        // The sender lives as long as the worker; without it nothing could close the gate either.
        drop(self.0.wait_for(|closed| *closed == 0).await);
    }

    /// Waits until work may not be pulled.
    pub(crate) async fn closed(&mut self) {
        if self.0.wait_for(|closed| *closed > 0).await.is_err() {
            std::future::pending().await
        }
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
            failing_since: Mutex::default(),
            succeeded: AtomicBool::new(false),
            open,
            closed_gates,
            health,
        }))
    }

    pub(crate) fn succeeded(&self) {
        self.0.succeeded.store(true, Ordering::Relaxed);
        // Almost always: nothing has failed.
        if self.0.failures.load(Ordering::Relaxed) > 0 || self.is_open() {
            self.close();
        }
    }

    fn close(&self) {
        self.0.failures.store(0, Ordering::Relaxed);
        *self.failing_since() = None;
        if self.0.open.send_if_modified(|open| std::mem::replace(open, false)) {
            self.0.closed_gates.send_modify(|closed| *closed -= 1);
            self.0.health.clear(self.0.needed);
            info!(needed = ?self.0.needed, "Outage over; pulling handoffs again.");
        }
    }

    pub(crate) fn failed(&self, why: &str) {
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let failing_for = self.failing_since().get_or_insert_with(Instant::now).elapsed();
        if failures >= OUTAGE_FAILURES || failing_for >= OUTAGE_TIME {
            self.trip(why);
        }
    }

    /// Opens at once: one failure is proof enough.
    pub(crate) fn trip(&self, why: &str) {
        if self.0.open.send_if_modified(|open| !std::mem::replace(open, true)) {
            self.0.closed_gates.send_modify(|closed| *closed += 1);
            self.0.health.block(self.0.needed, why.to_owned());
            warn!(needed = ?self.0.needed, why, "Outage: no handoffs are pulled until it is over.");
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.open.borrow()
    }

    fn failing_since(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.failing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While the breaker is open, probes now and then whether what is needed is back.
    pub(crate) async fn watch<F: Future<Output = bool>>(
        self,
        is_back: impl Fn() -> F,
        stop: CancellationToken,
    ) {
        let mut open = self.0.open.subscribe();
        let mut waits = Waits::forever(FIRST_PROBE, LONGEST_PROBE_WAIT);
        loop {
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: it only looks.
                seen = open.wait_for(|open| *open) => if seen.is_err() { return },
            }
            // Not reset when a probe succeeded and the next use failed all the same: then probes come less often.
            if self.0.succeeded.swap(false, Ordering::Relaxed) {
                waits.reset();
            }
            let pause = waits.next_wait().unwrap_or(LONGEST_PROBE_WAIT);
            if timeout(pause, stop.cancelled()).await.is_ok() {
                return;
            }
            if self.is_open() && is_back().await {
                self.close();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> (Breaker, Gate, Arc<Health>) {
        let health = Arc::new(Health::starting());
        let (closed, gate) = Gate::new();
        (Breaker::new(Blocker::Inference, closed, Arc::clone(&health)), gate, health)
    }

    #[tokio::test(start_paused = true)]
    async fn five_failures_in_a_row_close_the_gate_until_a_probe_succeeds() {
        let (breaker, mut gate, health) = breaker();
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
        let probes = Arc::new(AtomicU32::new(0));
        let watching = breaker.watch(|| async { probes.fetch_add(1, Ordering::Relaxed) == 2 }, stop.clone());
        tokio::select! {
            () = watching => panic!("it watches until it is told to stop"),
            () = gate.opened() => {}
        }
        assert_eq!(probes.load(Ordering::Relaxed), 3);
        assert!(!health.why_not().contains(&"connection refused".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_alone_for_a_while_close_the_gate_however_few() {
        let (breaker, gate, _health) = breaker();
        breaker.failed("refused");
        tokio::time::advance(OUTAGE_TIME).await;
        assert!(gate.is_open());
        breaker.failed("refused");
        assert!(!gate.is_open());
        breaker.succeeded();
        assert!(gate.is_open());
    }
}
