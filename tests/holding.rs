//! What is being worked on stays with whoever works on it; what is not, goes to whoever is free.

use std::time::{Duration, Instant};

use subjects::Kind;
use testkit::{Nats, Orchestrator, Worker, chat, eventually, schedule};

/// A handler that runs three times `ack_wait` is not redelivered.
#[tokio::test]
async fn slow_work_is_not_taken_away() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(3));
    let workers = [settings.start().await, settings.start().await];
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("slowly")).await;
    let completion = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(completion.attempts, 1);
    let mut received = 0.0;
    for worker in &workers {
        received += worker.metric("pma_handoffs_received_total{kind=\"chat\"}").await.unwrap_or(0.0);
    }
    assert_eq!(received, 1.0, "it was delivered more than once");
}

/// A busy instance holds nothing back: with one slot taken by slow work, the next handoff goes to the other instance
/// at once.
#[tokio::test]
async fn a_busy_instance_holds_nothing_back() {
    let nats = Nats::start();
    let slow = Worker::manager(&nats)
        .set("worker.concurrency.chat", "1")
        .thinking(Duration::from_secs(60))
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("occupies the slow one")).await;
    slow.holds(Kind::Chat, 1).await;
    let _quick = Worker::manager(&nats).set("worker.concurrency.chat", "1").start().await;
    for n in 0..20 {
        let asked = Instant::now();
        let id = orchestrator.publish(&chat(&format!("quick {n}"))).await;
        orchestrator.answered_within(Duration::from_secs(2), Kind::Chat, id).await;
        assert!(asked.elapsed() < Duration::from_secs(1), "number {n} took {:?}", asked.elapsed());
    }
    assert_eq!(slow.metric("pma_handoffs_received_total{kind=\"chat\"}").await, Some(1.0));
    assert_eq!(orchestrator.consumer(Kind::Chat).await.num_ack_pending, 1);
}

/// A zombie, frozen past `ack_wait` and thawed when another has answered, gives no second answer and does no harm to
/// what the other does.
#[tokio::test]
async fn a_zombie_changes_nothing() {
    let nats = Nats::start();
    // One slot, so that the zombie has no request open while it is frozen.
    let settings = Worker::manager(&nats)
        .set("worker.ack_wait", "1s")
        .set("worker.grace", "0s")
        .set("worker.concurrency.chat", "1");
    let mut zombie = settings.clone().thinking(Duration::from_secs(4)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("haunted")).await;
    zombie.holds(Kind::Chat, 1).await;
    zombie.process.freeze();
    let other = settings.clone().thinking(Duration::from_secs(6)).start().await;
    other.holds(Kind::Chat, 1).await;
    // Thawed while the other works: its late signs of life and its leaving must not touch the other's delivery.
    zombie.process.thaw();
    zombie.process.terminate();
    assert_eq!(zombie.process.wait(Duration::from_secs(10)).code(), Some(0), "{}", zombie.log());
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.attempts, 2);
    assert_eq!(
        other.metric("pma_handoffs_received_total{kind=\"chat\"}").await,
        Some(1.0),
        "taken from the other"
    );
    orchestrator.settled().await;
    assert_eq!(orchestrator.answers().await.len(), 1);
}

/// An instance never takes more than it has slots for.
#[tokio::test]
async fn an_instance_takes_no_more_than_it_has_slots() {
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
    worker.holds(Kind::Chat, 3).await;
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
    eventually("schedules to be in work", async || {
        (orchestrator.consumer(Kind::Schedule).await.num_ack_pending == 4).then_some(())
    })
    .await;
    for n in 0..5 {
        let asked = Instant::now();
        let id = orchestrator.publish(&chat(&format!("chat {n}"))).await;
        orchestrator.answered(Kind::Chat, id).await;
        // Its own thinking time, and hardly more.
        assert!(asked.elapsed() < Duration::from_millis(1_000), "chat {n} took {:?}", asked.elapsed());
    }
    assert!(orchestrator.queued().await > 500, "the schedules were gone before the chat was asked");
}
