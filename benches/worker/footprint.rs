//! The start time, idle CPU and memory of an instance.

use std::time::{Duration, Instant};

use subjects::{Kind, Subject};
use testkit::{Goal, Nats, Orchestrator, Report, Worker};

use super::throughput::fill;

const STARTS: usize = 11;
const IDLE: Duration = Duration::from_secs(20);
const IN_FLIGHT: usize = 10_000;
const HANDOFFS: usize = 30_000;
/// Long enough that all slots are taken before the first handoff ends.
const THINKING: Duration = Duration::from_secs(3);

pub(crate) async fn start_to_ready(report: &mut Report) {
    println!("start to ready: {STARTS} starts against a running server");
    let nats = Nats::start();
    let mut samples = Vec::new();
    let mut first = Vec::new();
    for start in 0..=STARTS {
        let started = Instant::now();
        let mut worker = Worker::manager(&nats).spawn();
        while !worker.log().contains("\"Ready.\"") {
            assert!(worker.process.is_running(), "{}", worker.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = started.elapsed().as_secs_f64() * 1_000.0;
        if start == 0 { first.push(took) } else { samples.push(took) }
    }
    report.add("start to ready, streams to be made", "ms", first, None);
    report.add("start to ready", "ms", samples, Some(Goal::AtMost(150.0)));
}

pub(crate) async fn idle_cpu(report: &mut Report) {
    println!("idle CPU over {IDLE:?}");
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let before = worker.process.cpu();
    tokio::time::sleep(IDLE).await;
    let share = (worker.process.cpu() - before) / IDLE.as_secs_f64() * 100.0;
    report.add("idle CPU", "% of a core", vec![share], Some(Goal::AtMost(1.0)));
}

pub(crate) async fn memory_in_flight(report: &mut Report) {
    println!("memory: {IN_FLIGHT} in flight, a handler of {THINKING:?}");
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    // The first start creates the streams, so that the queue can be filled before the measured worker starts.
    drop(Worker::manager(&nats).start().await);
    let settings =
        Worker::manager(&nats).set("worker.concurrency.chat", IN_FLIGHT.to_string()).thinking(THINKING);
    let idle = resident(&settings.start().await);
    fill(&orchestrator, &Subject::Handoff(Kind::Chat).to_string(), HANDOFFS).await;
    let worker = settings.start().await;
    let (mut most, mut at_most) = (0.0_f64, 0.0_f64);
    while orchestrator.queued().await > 0 {
        at_most = at_most.max(worker.metric("pma_handoffs_in_flight{kind=\"chat\"}").await.unwrap_or(0.0));
        most = most.max(resident(&worker));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    report.add("most in flight", "handoffs", vec![at_most], None);
    report.add("resident memory, idle", "KiB", vec![idle], None);
    report.add("resident memory, most", "KiB", vec![most], None);
    let each = (most - idle) / at_most.max(1.0);
    report.add("memory per handoff in flight", "KiB", vec![each], Some(Goal::AtMost(16.0)));
}

/// Returns the resident memory of a worker in KiB.
fn resident(worker: &Worker) -> f64 {
    let process = procfs::process::Process::new(i32::try_from(worker.process.id()).unwrap()).unwrap();
    process.status().unwrap().vmrss.unwrap() as f64
}
