//! The life of a breaker: closed, open, half-open.

use super::*;
use crate::gate::{Gate, PullAllowance};

/// Notes what a breaker reports.
#[derive(Debug, Default)]
struct Reports {
    blocked: Mutex<Option<String>>,
    connections: Mutex<Vec<&'static str>>,
}

impl Health for Reports {
    type Blocker = &'static str;
    const PULLED: &'static str = "handoffs";

    fn block(&self, _blocker: &'static str, why: String) {
        *self.blocked.lock().unwrap() = Some(why);
    }

    fn clear(&self, _blocker: &'static str) {
        *self.blocked.lock().unwrap() = None;
    }

    fn note_connected(&self, _blocker: &'static str) {
        self.connections.lock().unwrap().push("connected");
    }

    fn note_lost(&self, _blocker: &'static str, _why: &str) {
        self.connections.lock().unwrap().push("lost");
    }
}

impl Reports {
    fn why(&self) -> Option<String> {
        self.blocked.lock().unwrap().clone()
    }
}

fn breaker() -> (Breaker<Reports>, Gate, Arc<Reports>) {
    let health = Arc::new(Reports::default());
    let (breakers, gate) = Gate::new();
    (Breaker::new("inference", breakers, Arc::clone(&health)), gate, health)
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
    assert_eq!(health.why().as_deref(), Some("connection refused"));

    let stop = CancellationToken::new();
    let probes = Arc::new(AtomicU32::new(0));
    let watching = breaker.watch(|| async { probes.fetch_add(1, Ordering::Relaxed) == 2 }, stop.clone());
    tokio::select! {
        () = watching => panic!("it watches until it is told to stop"),
        () = gate.wait_open() => {}
    }
    assert_eq!(probes.load(Ordering::Relaxed), 3);
    assert_eq!(gate.allowance(2), PullAllowance::One, "one message finds out whether that is true");
    assert_eq!(gate.allowance(3), PullAllowance::None);
    assert_eq!(gate.allowance(2), PullAllowance::One, "its request brought nothing");
    assert_eq!(health.why(), None);
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
async fn no_probe_is_sent_while_a_running_task_retries() {
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
    breaker.note_connected();
    breaker.note_connected();
    breaker.note_lost("connection refused");
    assert_eq!(*health.connections.lock().unwrap(), ["connected", "lost"], "only a success may be known");
    assert!(gate.is_open(), "one lost connection is no outage yet");
    let watching = breaker.clone().watch(|| async { true }, CancellationToken::new());
    breaker.trip("connection refused");
    tokio::select! {
        () = watching => unreachable!(),
        () = gate.wait_open() => {}
    }
    assert_eq!(health.connections.lock().unwrap().last(), Some(&"connected"), "the probe reached it");
}
