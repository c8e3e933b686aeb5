//! SIGTERM: running handoffs finish within `worker.grace`; the rest is handed back at once.

use std::time::{Duration, Instant};

use subjects::Kind;
use testkit::{Nats, Orchestrator, Worker, chat, eventually};

/// A handoff that ends within `worker.grace` finishes.
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
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    worker.process.terminate();
    let status = worker.process.wait(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", worker.log());
    let completion = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(completion.attempts, 1);
    assert_eq!(orchestrator.queued().await, 0);
}

/// A handoff that does not end within `worker.grace` is with another instance soon, not after `ack_wait`.
#[tokio::test]
async fn unfinished_work_is_handed_back_at_once() {
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
    leaving.wait_for_in_flight(Kind::Chat, 10).await;
    let _other = Worker::manager(&nats).set("worker.ack_wait", "60s").start().await;
    leaving.process.terminate();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grace_is_over = Instant::now();
    for id in ids {
        let completion = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(completion.attempts, 2);
    }
    assert!(grace_is_over.elapsed() < Duration::from_secs(20), "took {:?}", grace_is_over.elapsed());
    assert_eq!(leaving.process.wait(Duration::from_secs(5)).code(), Some(0));
}

/// No delivery gets stuck on its way to an instance that shuts down: under load, a series of restarts delays
/// no handoff by `ack_wait`.
#[tokio::test]
async fn restarts_under_load_strand_no_delivery() {
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
    worker.wait_until_ready().await;
    let started = Instant::now();
    orchestrator.wait_until_settled().await;
    assert!(started.elapsed() < Duration::from_secs(50), "a handoff waited for ack_wait");
    for id in ids {
        assert!(orchestrator.answer(Kind::Chat, id).await.is_some(), "{id}");
    }
}

/// Readiness is withdrawn first, with the reason; a second signal ends the grace period.
#[tokio::test]
async fn readiness_is_withdrawn_first_and_a_second_signal_ends_the_grace() {
    let nats = Nats::start();
    let mut worker =
        Worker::manager(&nats).set("worker.grace", "60s").thinking(Duration::from_secs(120)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("long")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    assert_eq!(worker.get("/readyz").await, (200, "ready\n".to_owned()));
    worker.process.terminate();
    eventually("/readyz to report 503", async || {
        let (status, why) = worker.get("/readyz").await;
        (status == 503 && why.contains("draining")).then_some(())
    })
    .await;
    assert!(worker.process.is_running());
    worker.process.terminate();
    assert_eq!(worker.process.wait(Duration::from_secs(5)).code(), Some(0), "{}", worker.log());
    // Handed back: the next instance gets it at once, although `ack_wait` is half a minute.
    let next = Worker::manager(&nats).thinking(Duration::from_secs(120)).start().await;
    let started = Instant::now();
    next.wait_for_in_flight(Kind::Chat, 1).await;
    assert!(started.elapsed() < Duration::from_secs(15), "took {:?}", started.elapsed());
}

/// A worker that waits for NATS can be stopped.
#[tokio::test]
async fn worker_that_waits_for_nats_stops_on_sigterm() {
    let mut nats = Nats::start();
    nats.kill();
    let mut worker = Worker::manager(&nats).spawn();
    eventually("the worker to wait for NATS", async || {
        worker.log().contains("NATS not reachable yet").then_some(())
    })
    .await;
    worker.process.terminate();
    assert_eq!(worker.process.wait(Duration::from_secs(3)).code(), Some(0), "{}", worker.log());
}

/// A worker that lost NATS can be stopped while it has handoffs in progress.
#[tokio::test]
async fn worker_that_lost_nats_stops_on_sigterm() {
    let mut nats = Nats::start();
    let mut worker =
        Worker::manager(&nats).set("worker.grace", "1s").thinking(Duration::from_secs(120)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for n in 0..16 {
        orchestrator.publish(&chat(&format!("{n}"))).await;
    }
    worker.wait_for_in_flight(Kind::Chat, 16).await;
    nats.kill();
    worker.process.terminate();
    worker.process.wait(Duration::from_secs(20));
}
