//! The promise under random kills of workers; at the end all answers are counted.

use std::time::Duration;

use futures_util::StreamExt;
use rand::{Rng, SeedableRng, rngs::StdRng};
use subjects::{Role, streams};
use testkit::{Nats, Orchestrator, Worker, chat, eventually_within};

const HANDOFFS: usize = 10_000;
const WORKERS: usize = 4;
const KILLS: usize = 20;
/// So slow that the kills are over before the handoffs are done.
const THINKING: Duration = Duration::from_millis(40);
const SLOTS: usize = 8;

/// C6, C7, O11: 10,000 handoffs, 4 workers, 20 random SIGKILLs: 10,000 answers, one each, none lost.
/// `STORM_SEED` repeats a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_handoff_is_answered_once_under_random_kills() {
    let seed =
        std::env::var("STORM_SEED").map_or_else(|_| rand::rng().random(), |seed| seed.parse().unwrap());
    println!("STORM_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let nats = Nats::start();
    let settings = Worker::manager(&nats)
        .set("worker.ack_wait", "3s")
        .set("worker.concurrency.chat", SLOTS.to_string())
        // Far more than the kills that one handoff can meet.
        .set("worker.max_attempts", "20")
        .thinking(THINKING);
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(settings.start().await);
    }
    let orchestrator = Orchestrator::connect(&nats).await;
    let publishing = futures_util::stream::iter((0..HANDOFFS).map(|n| {
        let orchestrator = &orchestrator;
        async move { orchestrator.publish(&chat(&format!("handoff {n}"))).await }
    }))
    .buffer_unordered(64)
    .collect::<Vec<_>>();
    let killing = async {
        let mut killed_while_busy = 0;
        for _ in 0..KILLS {
            tokio::time::sleep(Duration::from_millis(rng.random_range(50..450))).await;
            let victim = rng.random_range(0..WORKERS);
            if orchestrator.queued().await > 0 {
                killed_while_busy += 1;
            }
            workers[victim].process.kill();
            workers[victim] = settings.spawn();
        }
        killed_while_busy
    };
    let (published, killed_while_busy) = tokio::join!(publishing, killing);
    assert_eq!(killed_while_busy, KILLS, "the handoffs were done before the last kill; make them slower");

    let answers = orchestrator.all_answers(Role::ProjectManager, HANDOFFS, Duration::from_secs(120)).await;
    assert_eq!(answers.len(), HANDOFFS, "an answer to a handoff that was never published");
    for id in &published {
        assert_eq!(answers.get(id), Some(&1), "handoff {id}");
    }
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0, "a valid handoff was dead-lettered");
    eventually_within(Duration::from_secs(30), "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
}
