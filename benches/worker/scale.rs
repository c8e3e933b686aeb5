//! Scale-out: the same queue drained by 1, 2, 4 and 8 workers, with a model that takes half a second.

use std::time::{Duration, Instant};

use subjects::{Kind, Subject};
use testkit::{Goal, Model, Nats, Orchestrator, Report, Script, Worker};

use super::throughput::fill;

const HANDOFFS: usize = 2_000;
const WORKERS: [usize; 4] = [1, 2, 4, 8];
const SLOTS: usize = 16;
const THINKS: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) async fn measure(report: &mut Report) {
    println!("scale-out: {HANDOFFS} handoffs, {SLOTS} slots each, a model that takes {THINKS:?}");
    let mut alone = None;
    for workers in WORKERS {
        let rate = drained_by(workers).await;
        let alone = *alone.get_or_insert(rate);
        let of_slots = (workers * SLOTS) as f64 / THINKS.as_secs_f64();
        report.add(&format!("{workers} workers of {SLOTS} slots"), "/s", vec![rate], None);
        report.add(
            &format!("{workers} workers, share of what their slots allow"),
            "x",
            vec![rate / of_slots],
            None,
        );
        if workers > 1 {
            let share = rate / (alone * workers as f64);
            let goal = Some(Goal::AtLeast(0.9));
            report.add(&format!("{workers} workers, share of {workers} times one"), "x", vec![share], goal);
        }
    }
}

/// Returns handoffs per second, from the start of the workers on a full queue to the last acknowledgement.
async fn drained_by(workers: usize) -> f64 {
    let model = Model::start([Script::After(THINKS, Box::new(Script::say("OK")))]).await;
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let settings = Worker::manager(&nats)
        .asking(&model)
        .set("agent.assess_input", "false")
        .set("worker.concurrency.chat", SLOTS.to_string());
    // The first start creates the streams.
    drop(settings.start().await);
    fill(&orchestrator, &Subject::Handoff(Kind::Chat).to_string(), HANDOFFS).await;
    let started = Instant::now();
    let running: Vec<Worker> = (0..workers).map(|_| settings.spawn()).collect();
    while orchestrator.queued().await > 0 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    drop(running);
    HANDOFFS as f64 / started.elapsed().as_secs_f64()
}
