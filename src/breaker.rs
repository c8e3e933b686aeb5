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

/// Whether work may be pulled, as all breakers together say.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    breakers: watch::Receiver<Breakers>,
    /// The trial that goes on, and how many handoffs were in work when it began.
    trial: Option<(u64, usize)>,
}

/// How many breakers are open, and how many half open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breakers {
    open: u32,
    half_open: u32,
    /// Counts how often one became half open.
    trials: u64,
}

/// How much may be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    All,
    /// To find out whether an outage is over.
    One,
    /// Until that one has found out.
    None,
}

/// Stops the pulling while one thing that is needed is away.
#[derive(Clone, Debug)]
pub(crate) struct Breaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    needed: Blocker,
    failures: AtomicU32,
    /// When the first of the failures in a row was.
    failing_since: Mutex<Option<Instant>>,
    /// Handoffs in work that wait for it and try it themselves.
    waiting: AtomicU32,
    /// Whether there was a success since the last probe.
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
    /// A probe succeeded. One handoff of each kind is pulled to find out whether that is true.
    HalfOpen,
}

/// A handoff in work waits for what is away. While there is one, its tries tell more than a probe.
#[derive(Debug)]
pub(crate) struct Waiting(Breaker);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(crate) fn new() -> (watch::Sender<Breakers>, Self) {
        let (sender, receiver) = watch::channel(Breakers::default());
        (sender, Self { breakers: receiver, trial: None })
    }

    /// Waits until work may be pulled.
    pub(crate) async fn opened(&mut self) {
        // The sender lives as long as the worker; without it nothing could close the gate either.
        drop(self.breakers.wait_for(|breakers| breakers.open == 0).await);
    }

    /// Waits until work may not be pulled.
    pub(crate) async fn closed(&mut self) {
        if self.breakers.wait_for(|breakers| breakers.open > 0).await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns how much may be pulled beside the handoffs in work.
    pub(crate) fn admits(&mut self, in_work: usize) -> Admission {
        let breakers = *self.breakers.borrow();
        if breakers.half_open == 0 {
            return Admission::All;
        }
        let (trial, before) = *self.trial.get_or_insert((breakers.trials, in_work));
        if trial != breakers.trials {
            self.trial = Some((breakers.trials, in_work));
            return Admission::One;
        }
        if in_work > before { Admission::None } else { Admission::One }
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
            failures: AtomicU32::new(0),
            failing_since: Mutex::default(),
            waiting: AtomicU32::new(0),
            succeeded: AtomicBool::new(false),
            state,
            breakers,
            health,
        }))
    }

    pub(crate) fn succeeded(&self) {
        self.0.succeeded.store(true, Ordering::Relaxed);
        // Almost always: nothing has failed.
        if self.0.failures.load(Ordering::Relaxed) > 0 || self.state() != State::Closed {
            self.forget_failures();
            if self.set(State::Closed) {
                self.0.health.clear(self.0.needed);
                info!(needed = ?self.0.needed, "Outage over; pulling handoffs again.");
            }
        }
    }

    pub(crate) fn failed(&self, why: &str) {
        let failures = self.0.failures.fetch_add(1, Ordering::Relaxed) + 1;
        let failing_for = self.failing_since().get_or_insert_with(Instant::now).elapsed();
        let is_outage = failures >= OUTAGE_FAILURES || failing_for >= OUTAGE_TIME;
        if is_outage || self.state() == State::HalfOpen {
            self.trip(why);
        }
    }

    /// Opens at once: one failure is proof enough.
    pub(crate) fn trip(&self, why: &str) {
        if self.set(State::Open) {
            self.0.health.block(self.0.needed, why.to_owned());
            warn!(needed = ?self.0.needed, why, "Outage: no handoffs are pulled until it is over.");
        }
    }

    /// Counts a handoff in work that waits, until the guard is dropped.
    pub(crate) fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state() == State::Open
    }

    /// Whether the next handoff finds out if the outage is over.
    pub(crate) fn is_half_open(&self) -> bool {
        self.state() == State::HalfOpen
    }

    fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// Whether that is a change.
    fn set(&self, to: State) -> bool {
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

    /// While the breaker is open and no handoff in work finds out by itself, probes now and then whether what is needed is
    /// back.
    pub(crate) async fn watch<F: Future<Output = bool>>(
        self,
        is_back: impl Fn() -> F,
        stop: CancellationToken,
    ) {
        let mut state = self.0.state.subscribe();
        let mut waits = Waits::forever(FIRST_PROBE, LONGEST_PROBE_WAIT);
        loop {
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: it only looks.
                seen = state.wait_for(|state| *state == State::Open) => if seen.is_err() { return },
            }
            // Not reset when a probe succeeded and the next use failed all the same: then probes come less often.
            if self.0.succeeded.swap(false, Ordering::Relaxed) {
                waits.reset();
            }
            let pause = waits.next_wait().unwrap_or(LONGEST_PROBE_WAIT);
            if timeout(pause, stop.cancelled()).await.is_ok() {
                return;
            }
            let is_waited_for = || self.0.waiting.load(Ordering::Relaxed) > 0;
            if self.is_open() && !is_waited_for() && is_back().await && !is_waited_for() {
                self.forget_failures();
                if self.set(State::HalfOpen) {
                    self.0.health.clear(self.0.needed);
                    info!(needed = ?self.0.needed, "Probe succeeded; pulling one handoff of each kind.");
                }
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
        assert_eq!(gate.admits(2), Admission::One, "one handoff finds out whether that is true");
        assert_eq!(gate.admits(3), Admission::None);
        assert_eq!(gate.admits(2), Admission::One, "its request brought nothing");
        assert!(!health.why_not().contains(&"connection refused".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn half_open_breaker_opens_with_one_failure_and_closes_with_one_success() {
        let (breaker, mut gate, _health) = breaker();
        let half_open = async |gate: &mut Gate| {
            tokio::select! {
                () = breaker.clone().watch(|| async { true }, CancellationToken::new()) => unreachable!(),
                () = gate.opened() => {}
            }
        };
        breaker.trip("refused");
        half_open(&mut gate).await;
        assert_eq!(gate.admits(0), Admission::One);
        breaker.failed("refused");
        assert!(!gate.is_open());
        half_open(&mut gate).await;
        assert_eq!(gate.admits(1), Admission::One, "each trial admits one");
        breaker.succeeded();
        assert_eq!(gate.admits(1), Admission::All);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_probed_while_a_handoff_in_work_tries_itself() {
        let (breaker, mut gate, _health) = breaker();
        breaker.trip("refused");
        let waiting = breaker.wait();
        let watching = breaker.clone().watch(|| async { true }, CancellationToken::new());
        let mut watching = std::pin::pin!(watching);
        tokio::select! {
            () = &mut watching => unreachable!(),
            () = tokio::time::sleep(Duration::from_secs(120)) => assert!(!gate.is_open()),
        }
        drop(waiting);
        tokio::select! {
            () = watching => unreachable!(),
            () = gate.opened() => {}
        }
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
