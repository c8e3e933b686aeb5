//! SIGTERM: finish what can be finished, hand back the rest at once.

use std::time::{Duration, Instant};

use subjects::Kind;
use testkit::{Nats, Orchestrator, Worker, chat, eventually};

/// Work that ends within `grace` ends here.
#[tokio::test]
async fn running_work_finishes_within_grace() {
    let nats = Nats::start();
    let mut worker = Worker::manager(&nats)
        .set("worker.grace", "10s")
        .thinking(Duration::from_millis(1_500))
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("nearly done")).await;
    worker.holds(Kind::Chat, 1).await;
    worker.process.terminate();
    let status = worker.process.wait(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", worker.log());
    let completion = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(completion.attempts, 1);
    assert_eq!(orchestrator.queued().await, 0);
}

/// Work that does not end within `grace` is with another instance in under a second, not after `ack_wait`.
#[tokio::test]
async fn unfinished_work_is_handed_on_at_once() {
    let nats = Nats::start();
    let mut leaving = Worker::manager(&nats)
        .set("worker.grace", "300ms")
        .set("worker.ack_wait", "60s")
        .thinking(Duration::from_secs(120))
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(orchestrator.publish(&chat(&format!("{n}"))).await);
    }
    leaving.holds(Kind::Chat, 10).await;
    let _other = Worker::manager(&nats).set("worker.ack_wait", "60s").start().await;
    leaving.process.terminate();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grace_is_over = Instant::now();
    for id in ids {
        let completion = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(completion.attempts, 2);
    }
    assert!(grace_is_over.elapsed() < Duration::from_secs(1), "took {:?}", grace_is_over.elapsed());
    assert_eq!(leaving.process.wait(Duration::from_secs(5)).code(), Some(0));
}

/// Nothing gets stuck on its way to an instance that is leaving: under load, restarts in a row delay no handoff by
/// `ack_wait`.
#[tokio::test]
async fn nothing_is_lost_on_the_way_to_one_who_leaves() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats)
        .set("worker.grace", "0s")
        .set("worker.ack_wait", "60s")
        .set("worker.max_attempts", "24")
        .thinking(Duration::from_millis(5));
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut worker = settings.start().await;
    let mut ids = Vec::new();
    for round in 0..8 {
        for n in 0..200 {
            ids.push(orchestrator.publish(&chat(&format!("{round} {n}"))).await);
        }
        worker.process.terminate();
        let next = settings.spawn();
        assert_eq!(worker.process.wait(Duration::from_secs(5)).code(), Some(0), "{}", worker.log());
        worker = next;
    }
    worker.ready().await;
    let started = Instant::now();
    orchestrator.settled().await;
    assert!(started.elapsed() < Duration::from_secs(20), "something waited for its ack_wait");
    for id in ids {
        assert!(orchestrator.answer(Kind::Chat, id).await.is_some(), "{id}");
    }
}

/// Readiness falls first, and says why; a second signal ends the grace.
#[tokio::test]
async fn readiness_falls_first_and_a_second_signal_hurries() {
    let nats = Nats::start();
    let mut worker =
        Worker::manager(&nats).set("worker.grace", "60s").thinking(Duration::from_secs(120)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("long")).await;
    worker.holds(Kind::Chat, 1).await;
    assert_eq!(worker.get("/readyz").await, (200, "ready\n".to_owned()));
    worker.process.terminate();
    eventually("readiness to fall", async || {
        let (status, why) = worker.get("/readyz").await;
        (status == 503 && why.contains("draining")).then_some(())
    })
    .await;
    assert!(worker.process.is_running());
    worker.process.terminate();
    assert_eq!(worker.process.wait(Duration::from_secs(5)).code(), Some(0), "{}", worker.log());
    // Handed back: the next instance has it at once, though its ack_wait is half a minute.
    let next = Worker::manager(&nats).thinking(Duration::from_secs(120)).start().await;
    let started = Instant::now();
    next.holds(Kind::Chat, 1).await;
    assert!(started.elapsed() < Duration::from_secs(2), "took {:?}", started.elapsed());
}

/// A worker that waits for its server can be told to stop.
#[tokio::test]
async fn a_worker_that_waits_for_nats_stops_when_told() {
    let mut nats = Nats::start();
    nats.kill();
    let mut worker = Worker::manager(&nats).spawn();
    eventually("the worker to wait", async || worker.log().contains("NATS not reachable yet").then_some(()))
        .await;
    worker.process.terminate();
    assert_eq!(worker.process.wait(Duration::from_secs(3)).code(), Some(0), "{}", worker.log());
}

/// A worker that loses its server can be told to stop, with work in hand.
#[tokio::test]
async fn a_worker_that_lost_nats_stops_when_told() {
    let mut nats = Nats::start();
    let mut worker =
        Worker::manager(&nats).set("worker.grace", "1s").thinking(Duration::from_secs(120)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for n in 0..16 {
        orchestrator.publish(&chat(&format!("{n}"))).await;
    }
    worker.holds(Kind::Chat, 16).await;
    nats.kill();
    worker.process.terminate();
    worker.process.wait(Duration::from_secs(20));
}
