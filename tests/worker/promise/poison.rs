//! What counts towards `poisoned`.

use std::time::Duration;

use subjects::{ErrorCode, Kind, Status, streams};
use testkit::{Nats, Orchestrator, Worker, chat, eventually_within};

const PATIENCE: Duration = Duration::from_secs(60);

/// Orderly stops before the claim hand the delivery back. However many there are, none counts as a crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orderly_stops_before_the_claim_do_not_poison() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats)
        .set("worker.ack_wait", "1s")
        .set("worker.grace", "0s")
        .set("worker.max_attempts", "3");
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    let id = orchestrator.publish(&chat("hello")).await;
    for round in 0..8 {
        let mut worker = settings.clone().stopping_at("BeforeClaim#1").start().await;
        eventually_within(PATIENCE, "the delivery", async || {
            worker.log().contains("BeforeClaim#1").then_some(())
        })
        .await;
        worker.process.terminate();
        assert_eq!(worker.process.wait(Duration::from_secs(10)).code(), Some(0), "round {round}");
    }
    let _worker = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
}

/// Crashes before the claim count: a handoff that kills each worker before it can be claimed is
/// dead-lettered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_before_the_claim_poison() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.ack_wait", "1s").set("worker.max_attempts", "2");
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    let id = orchestrator.publish(&chat("kills")).await;
    let mut deaths = 0;
    let answer = loop {
        // The journal that counts deliveries has its own claim; the claim of the handoff comes after it.
        let mut worker = settings.clone().stopping_at("Admitted#1").start().await;
        let stopped = eventually_within(PATIENCE, "a crash or an answer", async || {
            if worker.log().contains("Admitted#1") {
                return Some(true);
            }
            orchestrator.answer(subjects::Kind::Chat, id).await.map(|_| false)
        })
        .await;
        worker.process.kill();
        if !stopped {
            break orchestrator.completion(Kind::Chat, id).await;
        }
        deaths += 1;
        assert!(deaths < 10, "the handoff is never dead-lettered");
    };
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::Poisoned));
    assert!(deaths >= 2, "dead-lettered after {deaths} crashes");
    assert_eq!(orchestrator.stored(streams::DEAD).await, 1);
    let _healthy = settings.start().await;
    orchestrator.wait_until_settled().await;
}
