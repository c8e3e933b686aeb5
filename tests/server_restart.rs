//! The server dies and comes back; workers stay up and go on.

use std::time::{Duration, Instant};

use subjects::{Role, streams};
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

    let answered = async || match orchestrator.jetstream.get_stream(streams::HANDOFFS).await {
        Ok(stream) => Some((HANDOFFS as u64).saturating_sub(stream.cached_info().state.messages)),
        // Not back yet.
        Err(_) => None,
    };
    let before = eventually_within(Duration::from_secs(15), "the answers to be readable", &answered).await;
    assert!(before < HANDOFFS as u64, "all was done before the server died; make it slower");
    // Never longer than 15 s without another answer, down to the last one.
    let mut longest = Duration::ZERO;
    let mut last = (before, back);
    while last.0 < HANDOFFS as u64 {
        let now = eventually_within(Duration::from_secs(15), "the next answer", async || {
            answered().await.filter(|now| *now > last.0)
        })
        .await;
        longest = longest.max(last.1.elapsed());
        last = (now, Instant::now());
    }
    println!("longest stall {:.1} s", longest.as_secs_f64());
    let answers = orchestrator.all_answers(Role::ProjectManager, HANDOFFS, Duration::from_secs(30)).await;
    assert_eq!(answers.len(), HANDOFFS);
    assert!(published.iter().all(|id| answers.get(id) == Some(&1)));
    // What the server forgot that it delivered is settled when it comes back.
    eventually_within(Duration::from_secs(60), "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
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
        (status == 503 && why.contains("cannot connect")).then_some(())
    })
    .await;
    nats.start_again();
    worker.ready().await;
    assert_eq!(worker.get("/readyz").await.0, 200);
}
