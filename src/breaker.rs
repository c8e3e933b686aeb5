//! Circuit breakers: while something that every handoff needs is unavailable, no handoffs are pulled.
//!
//! Otherwise an outage would use up the deliveries of every queued handoff.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use broker::retry::RetryDelays;
use subjects::BackendState;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::telemetry::{Blocker, Health};

/// This many consecutive failures are an outage.
const OUTAGE_FAILURES: u32 = 5;
/// Failures without a success over this time are an outage too, however few: a single handoff fails rarely.
const OUTAGE_DURATION: Duration = Duration::from_secs(2);
const FIRST_PROBE_WAIT: Duration = Duration::from_secs(1);
const MAX_PROBE_WAIT: Duration = Duration::from_secs(30);

/// Whether handoffs may be pulled, given the state of all breakers.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    breakers: watch::Receiver<Breakers>,
    /// Number of the current trial, and how many handoffs were running when it began.
    trial: Option<(u64, usize)>,
}

/// How many breakers are open and half-open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breakers {
    open: u32,
    half_open: u32,
    /// Number of times that a breaker became half-open.
    trials: u64,
}

/// How many handoffs may be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullAllowance {
    All,
    /// One, to test whether the outage is over.
    One,
    /// None until that test has a result.
    None,
}

/// Stops pulling while one required service is unavailable.
#[derive(Clone, Debug)]
pub(crate) struct Breaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    needed: Blocker,
    /// Whether the backend is known to be reached, if what is needed is one.
    is_connected: AtomicBool,
    failures: AtomicU32,
    /// When the current run of failures began.
    failing_since: Mutex<Option<Instant>>,
    /// Number of running handoffs that wait for the service and retry it themselves.
    waiting: AtomicU32,
    /// Whether a call succeeded since the last probe.
    succeeded: AtomicBool,
    state: watch::Sender<State>,
    breakers: watch::Sender<Breakers>,
    health: Arc<Health>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// Nothing is pulled.
    Open,
    /// A probe succeeded. One handoff of each kind is pulled to confirm it.
    HalfOpen,
}

/// Counts a running handoff that waits for the service, until it is dropped. While there is one, its retries
/// replace the probes.
#[derive(Debug)]
pub(crate) struct WaitingGuard(Breaker);

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(crate) fn new() -> (watch::Sender<Breakers>, Self) {
        let (sender, receiver) = watch::channel(Breakers::default());
        (sender, Self { breakers: receiver, trial: None })
    }

    /// Waits until handoffs may be pulled.
    pub(crate) async fn wait_open(&mut self) {
        // The sender lives as long as the worker, and without it the gate could not close.
        drop(self.breakers.wait_for(|breakers| breakers.open == 0).await);
    }

    /// Waits until handoffs may not be pulled.
    pub(crate) async fn wait_closed(&mut self) {
        if self.breakers.wait_for(|breakers| breakers.open > 0).await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns how many handoffs may be pulled while `running` ones are in progress. Begins a new trial if a
    /// breaker became half-open.
    pub(crate) fn allowance(&mut self, running: usize) -> PullAllowance {
        let breakers = *self.breakers.borrow();
        if breakers.half_open == 0 {
            return PullAllowance::All;
        }
        let (trial, before) = *self.trial.get_or_insert((breakers.trials, running));
        if trial != breakers.trials {
            self.trial = Some((breakers.trials, running));
            return PullAllowance::One;
        }
        if running > before { PullAllowance::None } else { PullAllowance::One }
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        self.breakers.borrow().open == 0
    }
}

impl Breakers {
    fn count(&mut self, state: State) -> Option<&mut u32> {
        match state {
            State::Closed => None,
            State::Open => Some(&mut self.open),
            State::HalfOpen => Some(&mut self.half_open),
        }
    }
}

impl Breaker {
    pub(crate) fn new(needed: Blocker, breakers: watch::Sender<Breakers>, health: Arc<Health>) -> Self {
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
    pub(crate) fn record_success(&self) {
        self.0.succeeded.store(true, Ordering::Relaxed);
        // The common case is that nothing has failed.
        if self.0.failures.load(Ordering::Relaxed) > 0 || self.state() != State::Closed {
            self.forget_failures();
            if self.set_state(State::Closed) {
                self.0.health.clear(self.0.needed);
                info!(needed = ?self.0.needed, "Outage over; pulling handoffs again.");
            }
        }
    }

    /// Records a failed call. Opens the breaker if this is an outage, or if it was half-open.
    pub(crate) fn record_failure(&self, why: &str) {
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let failing_for = self.failing_since().get_or_insert_with(Instant::now).elapsed();
        let is_outage = failures >= OUTAGE_FAILURES || failing_for >= OUTAGE_DURATION;
        if is_outage || self.state() == State::HalfOpen {
            self.trip(why);
        }
    }

    /// Opens the breaker at once, for a failure that proves an outage by itself.
    pub(crate) fn trip(&self, why: &str) {
        if self.set_state(State::Open) {
            self.0.health.block(self.0.needed, why.to_owned());
            warn!(needed = ?self.0.needed, why, "Outage: no handoffs are pulled until it is over.");
        }
    }

    /// G14: notes that a call to the backend succeeded.
    pub(crate) fn note_connected(&self) {
        // The common case is that it is known.
        if self.0.is_connected.load(Ordering::Relaxed) {
            return;
        }
        self.0.is_connected.store(true, Ordering::Relaxed);
        self.0.health.set_backend(self.0.needed, BackendState::Connected, "");
    }

    /// G14: notes that a call to the backend got no response.
    pub(crate) fn note_lost(&self, why: &str) {
        self.0.health.set_backend(self.0.needed, BackendState::Lost, why);
        // Afterwards, so that the next success corrects the state in any case.
        self.0.is_connected.store(false, Ordering::Relaxed);
    }

    /// Counts a running handoff as waiting until the guard is dropped.
    pub(crate) fn count_waiting(&self) -> WaitingGuard {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingGuard(self.clone())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state() == State::Open
    }

    /// Returns whether the next handoff tests if the outage is over.
    pub(crate) fn is_half_open(&self) -> bool {
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
            self.0.breakers.send_modify(|breakers| {
                if let Some(before) = breakers.count(from) {
                    *before -= 1;
                }
                if let Some(after) = breakers.count(to) {
                    *after += 1;
                }
                breakers.trials += u64::from(to == State::HalfOpen);
            });
            true
        })
    }

    fn forget_failures(&self) {
        self.0.failures.store(0, Ordering::Relaxed);
        *self.failing_since() = None;
    }

    fn failing_since(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.failing_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Probes the service with `probe` while the breaker is open and no running handoff retries it. A
    /// successful probe makes the breaker half-open. Runs until `stop`.
    pub(crate) async fn watch<F: Future<Output = bool>>(
        self,
        probe: impl Fn() -> F,
        stop: CancellationToken,
    ) {
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
                    self.0.health.clear(self.0.needed);
                    info!(needed = ?self.0.needed, "Probe succeeded; pulling one handoff of each kind.");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use subjects::Backend;

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
            breaker.record_failure("refused");
        }
        breaker.record_success();
        for _ in 0..4 {
            breaker.record_failure("refused");
        }
        assert!(gate.is_open(), "a success between them starts the count anew");
        breaker.record_failure("connection refused");
        breaker.record_failure("connection refused");
        assert!(!gate.is_open());
        assert!(health.reasons_not_ready().contains(&"connection refused".to_owned()));

        let stop = CancellationToken::new();
        let probes = Arc::new(AtomicU32::new(0));
        let watching = breaker.watch(|| async { probes.fetch_add(1, Ordering::Relaxed) == 2 }, stop.clone());
        tokio::select! {
            () = watching => panic!("it watches until it is told to stop"),
            () = gate.wait_open() => {}
        }
        assert_eq!(probes.load(Ordering::Relaxed), 3);
        assert_eq!(gate.allowance(2), PullAllowance::One, "one handoff finds out whether that is true");
        assert_eq!(gate.allowance(3), PullAllowance::None);
        assert_eq!(gate.allowance(2), PullAllowance::One, "its request brought nothing");
        assert!(!health.reasons_not_ready().contains(&"connection refused".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn half_open_breaker_opens_with_one_failure_and_closes_with_one_success() {
        let (breaker, mut gate, _health) = breaker();
        let half_open = async |gate: &mut Gate| {
            tokio::select! {
                () = breaker.clone().watch(|| async { true }, CancellationToken::new()) => unreachable!(),
                () = gate.wait_open() => {}
            }
        };
        breaker.trip("refused");
        half_open(&mut gate).await;
        assert_eq!(gate.allowance(0), PullAllowance::One);
        breaker.record_failure("refused");
        assert!(!gate.is_open());
        half_open(&mut gate).await;
        assert_eq!(gate.allowance(1), PullAllowance::One, "each trial admits one");
        breaker.record_success();
        assert_eq!(gate.allowance(1), PullAllowance::All);
    }

    #[tokio::test(start_paused = true)]
    async fn no_probe_is_sent_while_a_running_handoff_retries() {
        let (breaker, mut gate, _health) = breaker();
        breaker.trip("refused");
        let waiting = breaker.count_waiting();
        let watching = breaker.clone().watch(|| async { true }, CancellationToken::new());
        let mut watching = std::pin::pin!(watching);
        tokio::select! {
            () = &mut watching => unreachable!(),
            () = tokio::time::sleep(Duration::from_secs(120)) => assert!(!gate.is_open()),
        }
        drop(waiting);
        tokio::select! {
            () = watching => unreachable!(),
            () = gate.wait_open() => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_without_a_success_close_the_gate_after_a_while() {
        let (breaker, gate, _health) = breaker();
        breaker.record_failure("refused");
        tokio::time::advance(OUTAGE_DURATION).await;
        assert!(gate.is_open());
        breaker.record_failure("refused");
        assert!(!gate.is_open());
        breaker.record_success();
        assert!(gate.is_open());
    }

    /// G14: a connection is connected, lost and restored when that happens, however few calls there are.
    #[tokio::test(start_paused = true)]
    async fn connection_is_known_at_once() {
        let (breaker, mut gate, health) = breaker();
        let mut changes = health.changes();
        assert!(health.backends().is_empty(), "nothing was called yet");
        for state in [BackendState::Lost, BackendState::Connected, BackendState::Lost] {
            for _ in 0..2 {
                match state {
                    BackendState::Connected => breaker.note_connected(),
                    BackendState::Lost => breaker.note_lost("connection refused"),
                }
            }
            assert_eq!(health.backends().get(&Backend::Model), Some(&state));
            assert!(changes.has_changed().unwrap());
            changes.mark_unchanged();
        }
        breaker.note_lost("connection refused");
        assert!(!changes.has_changed().unwrap(), "only a change is one");
        assert!(gate.is_open(), "one lost connection is no outage yet");
        let watching = breaker.clone().watch(|| async { true }, CancellationToken::new());
        breaker.trip("connection refused");
        tokio::select! {
            () = watching => unreachable!(),
            () = gate.wait_open() => {}
        }
        assert_eq!(health.backends()[&Backend::Model], BackendState::Connected, "the probe reached it");
    }
}
