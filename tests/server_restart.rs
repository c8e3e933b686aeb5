//! The server dies and comes back; workers stay up and go on.

use std::time::{Duration, Instant};

use subjects::{Kind, Role};
use testkit::{Nats, Orchestrator, Worker, chat, eventually, eventually_within};

const HANDOFFS: usize = 2_000;

/// Nothing is lost, no worker needs a restart, and work goes on within 15 s of the server's return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_when_the_server_is_back() {
    let mut nats = Nats::start();
    let settings =
        Worker::manager(&nats).set("worker.concurrency.chat", "8").thinking(Duration::from_millis(20));
    let mut workers = [settings.start().await, settings.start().await];
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut published = Vec::new();
    for n in 0..HANDOFFS {
        published.push(orchestrator.publish(&chat(&format!("handoff {n}"))).await);
    }
    eventually("work to be under way", async || {
        (orchestrator.queued().await < HANDOFFS as u64 - 100).then_some(())
    })
    .await;
    nats.kill();
    eventually("workers to notice", async || {
        let (status, why) = workers[0].get("/readyz").await;
        (status == 503 && why.contains("NATS")).then_some(())
    })
    .await;
    nats.start_again();
    let back = Instant::now();

    let before = eventually_within(Duration::from_secs(15), "the queue to be readable", async || {
        orchestrator.answer(Kind::Chat, published[0]).await.map(|_| ())?;
        Some(orchestrator.queued().await)
    })
    .await;
    assert!(before > 0, "all was done before the server died; make it slower");
    eventually_within(Duration::from_secs(15), "work to go on", async || {
        (orchestrator.queued().await < before).then_some(())
    })
    .await;
    println!("work went on {:.1} s after the server was back", back.elapsed().as_secs_f64());

    // Never longer than 15 s without progress, down to the last one.
    let mut left = orchestrator.queued().await;
    while left > 0 {
        left = eventually_within(Duration::from_secs(15), "the next answer", async || {
            let now = orchestrator.queued().await;
            (now < left).then_some(now)
        })
        .await;
    }
    let answers = orchestrator.all_answers(Role::ProjectManager, HANDOFFS, Duration::from_secs(30)).await;
    assert_eq!(answers.len(), HANDOFFS);
    assert!(published.iter().all(|id| answers.get(id) == Some(&1)));
    for worker in &mut workers {
        assert!(worker.process.is_running());
        assert_eq!(worker.get("/readyz").await.0, 200);
    }
}

/// A worker that starts before its server waits for it and says so.
#[tokio::test]
async fn a_worker_waits_for_a_server_that_is_not_there_yet() {
    let mut nats = Nats::start();
    nats.kill();
    let mut worker = Worker::manager(&nats).spawn();
    eventually("the worker to serve HTTP", async || worker.http()).await;
    eventually("the worker to say why it is not ready", async || {
        let (status, why) = worker.get("/readyz").await;
        (status == 503 && why.contains("cannot be reached")).then_some(())
    })
    .await;
    nats.start_again();
    worker.ready().await;
    assert_eq!(worker.get("/readyz").await.0, 200);
}
