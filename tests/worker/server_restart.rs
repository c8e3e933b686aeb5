//! nats-server is killed and restarted; workers keep running and continue.

use std::time::{Duration, Instant};

use subjects::{Role, streams};
use testkit::{Nats, Orchestrator, Worker, chat, eventually, eventually_within};

const HANDOFFS: usize = 2_000;

/// No handoff is lost, no worker needs a restart, and work continues within 15 s of the restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_continues_after_a_restart_of_nats() {
    let mut nats = Nats::start();
    let settings =
        Worker::manager(&nats).set("worker.concurrency.chat", "8").thinking(Duration::from_millis(20));
    let mut workers = [settings.start().await, settings.start().await];
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut published = Vec::new();
    for n in 0..HANDOFFS {
        published.push(orchestrator.publish(&chat(&format!("handoff {n}"))).await);
    }
    eventually("the first answers", async || {
        (orchestrator.queued().await < HANDOFFS as u64 - 100).then_some(())
    })
    .await;
    nats.kill();
    eventually("workers to notice the outage", async || {
        let (status, why) = workers[0].get("/readyz").await;
        (status == 503 && why.contains("NATS")).then_some(())
    })
    .await;
    nats.start_again();
    let back = Instant::now();

    let answered = async || match orchestrator.jetstream.get_stream(streams::HANDOFFS).await {
        Ok(stream) => Some((HANDOFFS as u64).saturating_sub(stream.cached_info().state.messages)),
        // Not restarted yet.
        Err(_) => None,
    };
    let before = eventually_within(Duration::from_secs(15), "the answers to be readable", &answered).await;
    assert!(
        before < HANDOFFS as u64,
        "all handoffs were done before the server was killed; make them slower"
    );
    // Never longer than 15 s without another answer, until the last one.
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
    // Deliveries that the server forgot are settled after their redelivery.
    eventually_within(Duration::from_secs(60), "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    for worker in &mut workers {
        assert!(worker.process.is_running());
        assert_eq!(worker.get("/readyz").await.0, 200);
    }
}

/// A worker that starts before NATS waits for it and reports this.
#[tokio::test]
async fn worker_waits_for_nats_at_startup() {
    let mut nats = Nats::start();
    nats.kill();
    let mut worker = Worker::manager(&nats).spawn();
    eventually("the worker to serve HTTP", async || worker.http()).await;
    eventually("/readyz to give the reason", async || {
        let (status, why) = worker.get("/readyz").await;
        (status == 503 && why.contains("cannot connect")).then_some(())
    })
    .await;
    nats.start_again();
    worker.wait_until_ready().await;
    assert_eq!(worker.get("/readyz").await.0, 200);
}
