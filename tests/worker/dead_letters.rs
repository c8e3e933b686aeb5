//! A handoff that kills every worker is dead-lettered exactly once, whichever process is left to do it.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use subjects::{DeadLetter, ErrorCode, Kind, Status, Stop, Subject, streams};
use testkit::{Nats, Orchestrator, Worker, WorkerBuilder, chat, eventually_within};

const PATIENCE: Duration = Duration::from_secs(40);

/// A worker that never finishes, so that there is time to kill it.
fn doomed(nats: &Nats) -> WorkerBuilder {
    // On a busy machine the worker may be late by seconds to say that it is alive.
    Worker::manager(nats).set("worker.ack_wait", "3s").thinking(Duration::from_secs(600))
}

/// Starts a worker and kills it once it works on the handoff. Returns `false` if there was no handoff left.
async fn dies_holding(settings: &WorkerBuilder, orchestrator: &Orchestrator) -> bool {
    let mut worker = settings.start().await;
    let held = eventually_within(PATIENCE, "the handoff to be taken or dead-lettered", async || {
        if worker.metric("pma_model_calls_total").await.is_some_and(|calls| calls >= 1.0) {
            return Some(true);
        }
        (orchestrator.queued().await == 0 || orchestrator.stored(streams::DEAD).await > 0).then_some(false)
    })
    .await;
    worker.process.kill();
    held
}

async fn only_letter(orchestrator: &Orchestrator) -> DeadLetter {
    let letters = orchestrator.contents(streams::DEAD).await;
    assert_eq!(letters.len(), 1, "exactly one dead letter");
    DeadLetter::read(&letters[0].subject, &letters[0].headers).unwrap()
}

async fn given_up(orchestrator: &Orchestrator, id: subjects::HandoffId) {
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Failed, Stop::GivenUp));
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::Poisoned));
}

/// The worker counts attempts and dead-letters the handoff before the server stops delivering it.
#[tokio::test]
async fn a_crash_loop_ends_in_one_dead_letter() {
    let nats = Nats::start();
    let settings = doomed(&nats).set("worker.max_attempts", "3");
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    let question = chat("kills its worker every time");
    let id = orchestrator.publish(&question).await;
    let mut deaths = 0;
    while dies_holding(&settings, &orchestrator).await {
        deaths += 1;
        assert!(deaths <= 3, "the handoff is never dead-lettered");
    }
    assert_eq!(deaths, 3);
    // A healthy worker that looks again changes nothing.
    let healthy = Worker::manager(&nats)
        .set("worker.ack_wait", "3s")
        .set("worker.max_attempts", "3")
        .set("worker.sweep_every", "1s")
        .start()
        .await;
    given_up(&orchestrator, id).await;
    eventually_within(PATIENCE, "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    let letter = only_letter(&orchestrator).await;
    assert_eq!(letter.reason, ErrorCode::Poisoned);
    assert!(letter.deliveries > 3, "{letter:?}");
    assert_eq!(letter.original.get("Nats-Msg-Id").map(|value| value.as_str()), Some(id.to_string().as_str()));
    let body = orchestrator.contents(streams::DEAD).await.remove(0).payload;
    assert_eq!(body, question.encode(subjects::Encoding::Json).unwrap());
    // It can be replayed: under a new id, since the old one has its answer.
    let url = nats.url();
    let replayed = tokio::task::spawn_blocking(move || {
        let line = ["--server", &url, "--json", "dead", "replay", "--reason", "poisoned"];
        testkit::run(&testkit::cynodectl(), testkit::workspace(), &line, &[])
    });
    let replayed = replayed.await.unwrap();
    let said: serde_json::Value = serde_json::from_str(&replayed.stdout).expect(&replayed.stderr);
    assert_eq!(said["replay_of"], id.to_string());
    let again = said["handoff_id"].as_str().unwrap().parse().unwrap();
    assert_eq!(orchestrator.wait_for_answer(Kind::Chat, again).await.error(), None);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    drop(healthy);
}

/// Limits the queue to two deliveries per handoff.
async fn two_deliveries_only(orchestrator: &Orchestrator) {
    let stream = orchestrator.jetstream.get_stream(streams::HANDOFFS).await.unwrap();
    let name = streams::consumer_name(Kind::Chat);
    stream.delete_consumer(name).await.unwrap();
    let config = pull::Config {
        durable_name: Some(name.to_owned()),
        filter_subject: Subject::Handoff(Kind::Chat).to_string(),
        ack_wait: Duration::from_secs(3),
        max_deliver: 2,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.unwrap();
}

/// The server reaches its delivery limit first: the mover acts on its advisory.
#[tokio::test]
async fn mover_dead_letters_after_the_servers_advisory() {
    let nats = Nats::start();
    let settings = doomed(&nats);
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    two_deliveries_only(&orchestrator).await;
    let id = orchestrator.publish(&chat("too much for the server")).await;
    assert!(dies_holding(&settings, &orchestrator).await);
    assert!(dies_holding(&settings, &orchestrator).await);
    // The server sends the advisory at the next pull. Two workers pull at once: only one dead letter may
    // result.
    let first = Worker::manager(&nats).set("worker.sweep_every", "1h").start().await;
    let second = Worker::manager(&nats).set("worker.sweep_every", "1h").start().await;
    given_up(&orchestrator, id).await;
    eventually_within(PATIENCE, "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    eventually_within(PATIENCE, "the advisory to be acknowledged", async || {
        (orchestrator.stored(streams::ADVISORIES).await == 0).then_some(())
    })
    .await;
    assert_eq!(only_letter(&orchestrator).await.deliveries, 2);
    let moved = first.metric("pma_dead_moved_total").await.unwrap()
        + second.metric("pma_dead_moved_total").await.unwrap();
    assert!(moved >= 1.0);
}

/// The server reached its delivery limit and the advisory was lost: the sweeper finds the handoff.
#[tokio::test]
async fn sweeper_dead_letters_after_a_lost_advisory() {
    let nats = Nats::start();
    let settings = doomed(&nats);
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    two_deliveries_only(&orchestrator).await;
    let id = orchestrator.publish(&chat("left behind")).await;
    assert!(dies_holding(&settings, &orchestrator).await);
    assert!(dies_holding(&settings, &orchestrator).await);
    // No stream stores the advisory, and none is created again.
    orchestrator.jetstream.delete_stream(streams::ADVISORIES).await.unwrap();
    let worker = Worker::manager(&nats)
        .set("nats.provision", "none")
        .set("worker.ack_wait", "3s")
        .set("worker.sweep_every", "1s")
        .start()
        .await;
    given_up(&orchestrator, id).await;
    eventually_within(PATIENCE, "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    assert_eq!(only_letter(&orchestrator).await.reason, ErrorCode::Poisoned);
    assert_eq!(worker.metric("pma_dead_swept_total").await, Some(1.0));
}
