//! Circuit breakers: while something that all work needs is unavailable, nothing is pulled.
//!
//! Otherwise an outage would use up the deliveries of everything that is queued.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use broker::retry::RetryDelays;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    gate::{Breakers, State},
    workload::Health,
};

/// This many consecutive failures are an outage.
const OUTAGE_FAILURES: u32 = 5;
/// Failures without a success over this time are an outage too, however few: a single task fails rarely.
const OUTAGE_DURATION: Duration = Duration::from_secs(2);
const FIRST_PROBE_WAIT: Duration = Duration::from_secs(1);
const MAX_PROBE_WAIT: Duration = Duration::from_secs(30);

/// Stops pulling while one required service is unavailable.
#[derive(Debug)]
pub struct Breaker<H: Health>(Arc<Inner<H>>);

impl<H: Health> Clone for Breaker<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<H: Health> {
    needed: H::Blocker,
    /// Whether the backend is known to be reached, if what is needed is one.
    is_connected: AtomicBool,
    failures: AtomicU32,
    /// When the current run of failures began.
    failing_since: Mutex<Option<Instant>>,
    /// Number of running tasks that wait for the service and retry it themselves.
    waiting: AtomicU32,
    /// Whether a call succeeded since the last probe.
    succeeded: AtomicBool,
    state: watch::Sender<State>,
    breakers: Breakers,
    health: Arc<H>,
}

/// Counts a running task that waits for the service, until it is dropped. While there is one, its retries
/// replace the probes.
#[derive(Debug)]
pub struct WaitingGuard<H: Health>(Breaker<H>);

impl<H: Health> Drop for WaitingGuard<H> {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<H: Health> Breaker<H> {
    /// Creates a closed breaker for what is `needed`. Its outages are reported to `breakers` and `health`.
    pub fn new(needed: H::Blocker, breakers: Breakers, health: Arc<H>) -> Self {
        let (state, _) = watch::channel(State::Closed);
        Self(Arc::new(Inner {
            needed,
            is_connected: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            failing_since: Mutex::default(),
            waiting: AtomicU32::new(0),
            succeeded: AtomicBool::new(false),
            state,
            breakers,
            health,
        }))
    }

    /// Records a successful call. Closes the breaker.
    pub fn record_success(&self) {
        self.0.succeeded.store(true, Ordering::Relaxed);
        // The common case is that nothing has failed.
        if self.0.failures.load(Ordering::Relaxed) > 0 || self.state() != State::Closed {
            self.forget_failures();
            if self.set_state(State::Closed) {
                self.0.health.clear(self.0.needed.clone());
                info!(needed = ?self.0.needed, "Outage over; pulling {} again.", H::PULLED);
            }
        }
    }

    /// Records a failed call. Opens the breaker if this is an outage, or if it was half-open.
    pub fn record_failure(&self, why: &str) {
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let failing_for = self.failing_since().get_or_insert_with(Instant::now).elapsed();
        let is_outage = failures >= OUTAGE_FAILURES || failing_for >= OUTAGE_DURATION;
        if is_outage || self.state() == State::HalfOpen {
            self.trip(why);
        }
    }

    /// Opens the breaker at once, for a failure that proves an outage by itself.
    pub fn trip(&self, why: &str) {
        if self.set_state(State::Open) {
            self.0.health.block(self.0.needed.clone(), why.to_owned());
            warn!(needed = ?self.0.needed, why, "Outage: no {} are pulled until it is over.", H::PULLED);
        }
    }

    /// G14: notes that a call to the backend succeeded.
    pub fn note_connected(&self) {
        // The common case is that it is known.
        if self.0.is_connected.load(Ordering::Relaxed) {
            return;
        }
        self.0.is_connected.store(true, Ordering::Relaxed);
        self.0.health.note_connected(self.0.needed.clone());
    }

    /// G14: notes that a call to the backend got no response.
    pub fn note_lost(&self, why: &str) {
        self.0.health.note_lost(self.0.needed.clone(), why);
        // Afterwards, so that the next success corrects the state in any case.
        self.0.is_connected.store(false, Ordering::Relaxed);
    }

    /// Counts a running task as waiting until the guard is dropped.
    pub fn count_waiting(&self) -> WaitingGuard<H> {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingGuard(self.clone())
    }

    pub fn is_open(&self) -> bool {
        self.state() == State::Open
    }

    /// Returns whether the next message tests if the outage is over.
    pub fn is_half_open(&self) -> bool {
        self.state() == State::HalfOpen
    }

    fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// Sets the state and returns whether it changed.
    fn set_state(&self, to: State) -> bool {
        self.0.state.send_if_modified(|state| {
            let from = std::mem::replace(state, to);
            if from == to {
                return false;
            }
            self.0.breakers.change(from, to);
            true
        })
    }

    fn forget_failures(&self) {
        self.0.failures.store(0, Ordering::Relaxed);
        *self.failing_since() = None;
    }

    fn failing_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.failing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Probes the service with `probe` while the breaker is open and no running task retries it. A
    /// successful probe makes the breaker half-open. Runs until `stop`.
    pub async fn watch<F: Future<Output = bool>>(self, probe: impl Fn() -> F, stop: CancellationToken) {
        let mut state = self.0.state.subscribe();
        let mut waits = RetryDelays::forever(FIRST_PROBE_WAIT, MAX_PROBE_WAIT);
        loop {
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: only observes.
                seen = state.wait_for(|state| *state == State::Open) => if seen.is_err() { return },
            }
            // Not reset if a probe succeeded and the next call failed: then probes become less frequent.
            if self.0.succeeded.swap(false, Ordering::Relaxed) {
                waits.reset();
            }
            let pause = waits.next_delay().unwrap_or(MAX_PROBE_WAIT);
            if timeout(pause, stop.cancelled()).await.is_ok() {
                return;
            }
            let has_waiting = || self.0.waiting.load(Ordering::Relaxed) > 0;
            if self.is_open() && !has_waiting() && probe().await && !has_waiting() {
                self.forget_failures();
                self.note_connected();
                if self.set_state(State::HalfOpen) {
                    self.0.health.clear(self.0.needed.clone());
                    info!(needed = ?self.0.needed, "Probe succeeded; pulling one message of each kind.");
                }
            }
        }
    }
}

impl<H: Health> chain::Outages for Breaker<H> {
    type Waiting = WaitingGuard<H>;

    fn record_success(&self) {
        Self::record_success(self);
    }

    fn record_failure(&self, why: &str) {
        Self::record_failure(self, why);
    }

    fn trip(&self, why: &str) {
        Self::trip(self, why);
    }

    fn count_waiting(&self) -> WaitingGuard<H> {
        Self::count_waiting(self)
    }
}

#[cfg(test)]
mod tests;
