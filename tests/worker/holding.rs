//! A delivery in progress stays with its worker; waiting handoffs go to workers with free slots.

use std::time::{Duration, Instant};

use subjects::Kind;
use testkit::{Nats, Orchestrator, Worker, chat, eventually, schedule};

/// Work that takes three times `ack_wait` is not redelivered.
#[tokio::test]
async fn slow_work_is_not_redelivered() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.ack_wait", "4s").thinking(Duration::from_secs(12));
    let workers = [settings.start().await, settings.start().await];
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("slowly")).await;
    let completion = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(completion.attempts, 1);
    let mut received = 0.0;
    for worker in &workers {
        received += worker.metric("pma_handoffs_received_total{kind=\"chat\"}").await.unwrap_or(0.0);
    }
    assert_eq!(received, 1.0, "the handoff was delivered more than once");
}

/// An instance pulls no more than it has free slots for: while its only slot is busy, the next handoff goes
/// to the other instance at once.
#[tokio::test]
async fn busy_instance_prefetches_no_handoffs() {
    let nats = Nats::start();
    let slow = Worker::manager(&nats)
        .set("worker.concurrency.chat", "1")
        .thinking(Duration::from_secs(60))
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("occupies the slow one")).await;
    slow.wait_for_in_flight(Kind::Chat, 1).await;
    let _quick = Worker::manager(&nats).set("worker.concurrency.chat", "1").start().await;
    for n in 0..20 {
        let id = orchestrator.publish(&chat(&format!("quick {n}"))).await;
        orchestrator.wait_for_answer_within(Duration::from_secs(20), Kind::Chat, id).await;
    }
    assert_eq!(slow.metric("pma_handoffs_received_total{kind=\"chat\"}").await, Some(1.0));
    assert_eq!(orchestrator.consumer(Kind::Chat).await.num_ack_pending, 1);
}

/// A worker that is frozen past `ack_wait` and resumes after another one took its handoff gives no second
/// answer and does not disturb the other worker.
#[tokio::test]
async fn frozen_worker_does_not_disturb_the_new_owner() {
    let nats = Nats::start();
    // One slot, so that the frozen worker has no open pull request.
    let settings = Worker::manager(&nats)
        .set("worker.ack_wait", "1s")
        .set("worker.grace", "0s")
        .set("worker.concurrency.chat", "1");
    let mut zombie = settings.clone().thinking(Duration::from_secs(4)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("haunted")).await;
    zombie.wait_for_in_flight(Kind::Chat, 1).await;
    zombie.process.freeze();
    let other = settings.clone().thinking(Duration::from_secs(6)).start().await;
    other.wait_for_in_flight(Kind::Chat, 1).await;
    // Resumed while the other works: its late heartbeats and its shutdown must not touch the other delivery.
    zombie.process.thaw();
    zombie.process.terminate();
    assert_eq!(zombie.process.wait(Duration::from_secs(10)).code(), Some(0), "{}", zombie.log());
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.attempts, 2);
    assert_eq!(
        other.metric("pma_handoffs_received_total{kind=\"chat\"}").await,
        Some(1.0),
        "the handoff was taken from the new owner"
    );
    orchestrator.wait_until_settled().await;
    assert_eq!(orchestrator.answers().await.len(), 1);
}

/// An instance never takes more handoffs than it has slots.
#[tokio::test]
async fn instance_takes_no_more_handoffs_than_it_has_slots() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats)
        .set("worker.concurrency.chat", "3")
        .thinking(Duration::from_secs(60))
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for n in 0..10 {
        orchestrator.publish(&chat(&format!("{n}"))).await;
    }
    worker.wait_for_in_flight(Kind::Chat, 3).await;
    let info = orchestrator.consumer(Kind::Chat).await;
    assert_eq!((info.num_ack_pending, info.num_pending), (3, 7));
}

/// G10: one thousand queued schedules do not delay a chat.
#[tokio::test]
async fn a_flood_of_one_kind_does_not_delay_another() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).thinking(Duration::from_millis(300)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    for n in 0..1_000 {
        orchestrator.publish(&schedule(&format!("schedule {n}"))).await;
    }
    eventually("schedules to be in progress", async || {
        (orchestrator.consumer(Kind::Schedule).await.num_ack_pending == 4).then_some(())
    })
    .await;
    for n in 0..5 {
        let asked = Instant::now();
        let id = orchestrator.publish(&chat(&format!("chat {n}"))).await;
        orchestrator.wait_for_answer(Kind::Chat, id).await;
        // The schedules take more than a minute.
        assert!(asked.elapsed() < Duration::from_secs(5), "chat {n} took {:?}", asked.elapsed());
    }
    assert!(orchestrator.queued().await > 500, "the schedules were done before the chats were published");
}
