//! Limits on sizes, times and ages.

use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use futures_util::StreamExt;
use serde_json::json;
use subjects::{Encoding, ErrorCode, Handoff, Kind, Status, Timestamp, streams};
use testkit::{
    Answer as ToolAnswer, Errands, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker, chat, eventually,
};
use time::OffsetDateTime;

use super::ctl;

/// The stored answer and the copy on `reply_to` are the same bytes, also if the original answer is too large
/// for the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_on_reply_to_equals_the_stored_answer() {
    let nats = Nats::start_with("max_payload: 32KB");
    let model = Model::start([Script::Say("x".repeat(60_000))]).await;
    let _worker = Worker::manager(&nats).asking(&model).set("agent.assess_input", "false").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut copies = orchestrator.client.subscribe("pma.reply.copies").await.unwrap();
    orchestrator.client.flush().await.unwrap();
    let asked = Handoff { reply_to: Some("pma.reply.copies".to_owned()), ..chat("say much") };
    let id = orchestrator.publish(&asked).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::Internal));
    let copied = tokio::time::timeout(Duration::from_secs(10), copies.next()).await.expect("a copy").unwrap();
    let stored = orchestrator.answers().await.remove(0);
    assert_eq!(copied.payload, stored.payload);
}

/// The verifications in the answer can be too large as well, for all that replaces it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_answer_with_long_findings_is_replaced_at_once() {
    let nats = Nats::start_with("max_payload: 32KB");
    let verify = |number: usize| {
        let criterion = format!("{number}{}", "x".repeat(12_000));
        let arguments = json!({ "task_id": "t-1", "acceptance_criteria": [criterion] });
        ("request_verification".to_owned(), arguments.to_string())
    };
    let turns = [Script::Call((0..3).map(verify).collect()), Script::say("I cannot tell.")];
    let unclear = json!({ "verdict": "unclear", "severity": "info", "evidence": null, "location": null,
        "recommended_action": null });
    let model = Model::start_with_structured(turns, move |_| Script::Say(unclear.to_string())).await;
    let get = Tool::new("db.task.get", "Reads a task.", json!({ "type": "object" }), |_| {
        ToolAnswer::task("t-1", "t-1", &[])
    });
    let gateway = Gateway::start(vec![get]).await;
    let manager = Worker::manager(&nats).asking(&model).calling(&gateway).set("analysts.enabled", "true");
    let _manager = manager.set("agent.context_tokens", "60000").start().await;
    let _analyst = Worker::analyst(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("Is t-1 done?")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    let code = answer.error.as_ref().map(|error| error.code);
    assert_eq!((code, answer.attempts), (Some(ErrorCode::Internal), 1), "{answer:?}");
    assert_eq!(answer.verifications.len(), 3, "{answer:?}");
    assert!(answer.verifications.iter().all(|it| it.status.is_some() && it.findings.is_empty()));
    assert_eq!(model.turns().len(), 2, "the last turn was paid once");
}

/// A complete errand with spilled entries on a server with a small `max_payload`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_a_small_max_payload_works() {
    let nats = Nats::start_with("max_payload: 16KB");
    let long = "y".repeat(30_000);
    let create = Tool::new("db.task.create", "Creates a task.", json!({ "type": "object" }), move |_| {
        ToolAnswer::text(&long)
    });
    let gateway = Gateway::start(vec![create]).await;
    let model = Model::start([
        Script::call("db__task__create", &json!({ "title": "z".repeat(20_000) })),
        Script::After(Duration::from_secs(2), Box::new(Script::say("done"))),
    ])
    .await;
    let settings = Worker::manager(&nats)
        .asking(&model)
        .calling(&gateway)
        .set("inference.timeout", "10s")
        .set("agent.assess_input", "false")
        .set("worker.ack_wait", "1s");
    let mut first = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("create a task")).await;
    eventually("the second turn", async || (model.turns().len() == 2).then_some(())).await;
    // The result of the call is stored while the model generates.
    eventually("two spilled entries", async || {
        let spilled = orchestrator.journal(id).await.iter().filter(|entry| entry.spilled.is_some()).count();
        (spilled == 2).then_some(())
    })
    .await;
    first.process.kill();
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    assert_eq!(
        (model.turns().len(), gateway.calls().len()),
        (3, 1),
        "the stored turns and results were reused"
    );
}

/// A model that keeps its stream open with empty deltas counts as silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_deltas_count_as_silence() {
    let nats = Nats::start();
    let model = Model::start([Script::Drip(Duration::from_millis(200))]).await;
    let _worker = Worker::manager(&nats)
        .asking(&model)
        .set("inference.timeout", "1s")
        .set("inference.tries", "1")
        .set("agent.assess_input", "false")
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("hello")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::InferenceUnavailable));
}

/// A handoff without a deadline is limited by `agent.max_turn`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_without_a_deadline_is_limited_in_time() {
    let nats = Nats::start();
    let model = Model::start([Script::Drip(Duration::from_millis(200))]).await;
    let _worker = Worker::manager(&nats)
        .asking(&model)
        .set("inference.timeout", "60s")
        .set("agent.assess_input", "false")
        .set("agent.max_turn", "3s")
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let started = Instant::now();
    let id = orchestrator.publish(&chat("hello")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.as_ref().map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
    assert!(answer.error.unwrap().message.contains("agent.max_turn"));
    assert!((2..10).contains(&started.elapsed().as_secs()), "after {:?}", started.elapsed());
    assert_eq!(orchestrator.stored(streams::DEAD).await, 1, "it can be replayed");
}

/// A turn that finishes while the stream refuses writes is kept until it is stored, even if the deadline
/// passes meanwhile. The replay continues from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_turn_is_stored_even_after_the_deadline() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    errands.hold_after(1);
    let worker = errands.worker(&nats).set("agent.max_turn", "8s").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let started = Instant::now();
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    orchestrator.refuse_runs(true).await;
    errands.release();
    eventually("/readyz to report 503", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    tokio::time::sleep_until((started + Duration::from_secs(9)).into()).await;
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none(), "no answer before the turn is stored");
    orchestrator.refuse_runs(false).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
    orchestrator.wait_until_settled().await;
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    assert_eq!(errands.asked("x1"), [1, 1, 1], "each turn was paid once");
    let effects = errands.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
}

/// While the model takes its second turn, the results of the first are stored. If that waits for the stream,
/// the turn that finished meanwhile does not wait with it: it is stored when time is over, and not paid
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_turn_does_not_wait_for_the_records_before_it() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    // The first append stores the turn with the calls that it begins, the second one their results.
    let worker =
        errands.worker(&nats).set("agent.max_turn", "3s").stopping_at("BeforeAppend#2").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
    assert_eq!(errands.asked("x1"), [1, 1, 0], "{}", worker.log());
    orchestrator.wait_until_settled().await;
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    assert_eq!(errands.asked("x1"), [1, 1, 1], "each turn was paid once");
    let effects = errands.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
}

/// A verbatim copy of an old handoff is refused: its answer and its keys may have expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_older_than_answers_are_kept_is_refused() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(10)).await;
    let _worker = errands.worker(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let issued = |ago: time::Duration| Timestamp::new(OffsetDateTime::now_utc() - ago).unwrap();
    let old = Handoff { issued_at: issued(time::Duration::days(8)), ..Errands::handoff("old") };
    orchestrator.publish(&old).await;
    let refused = orchestrator.completion(Kind::Chat, old.id).await;
    assert_eq!(refused.error.map(|error| error.code), Some(ErrorCode::StaleHandoff));
    assert_eq!(errands.asked("old"), [0, 0, 0]);
    let recent = Handoff { issued_at: issued(time::Duration::days(6)), ..Errands::handoff("recent") };
    orchestrator.publish(&recent).await;
    assert_eq!(orchestrator.completion(Kind::Chat, recent.id).await.status, Status::Completed);
    // A clock that is far ahead would keep a handoff fresh for ever.
    let ahead = Handoff { issued_at: issued(time::Duration::days(-2)), ..Errands::handoff("ahead") };
    let body = ahead.encode(Encoding::Json).unwrap();
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), body).await;
    let refused = orchestrator.completion(Kind::Chat, ahead.id).await;
    assert_eq!(refused.error.map(|error| error.code), Some(ErrorCode::InvalidHandoff));
}

/// Workers follow the `max_age` of the stream, also when it changes while they run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_worker_notices_a_shortened_max_age_of_answers() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let two_hours_ago = || Timestamp::new(OffsetDateTime::now_utc() - time::Duration::hours(2)).unwrap();
    let asked = Handoff { issued_at: two_hours_ago(), ..chat("hello") };
    orchestrator.publish(&asked).await;
    assert_eq!(orchestrator.completion(Kind::Chat, asked.id).await.status, Status::Completed);
    let mut config =
        orchestrator.jetstream.get_stream(streams::RUNS).await.unwrap().cached_info().config.clone();
    config.max_age = Duration::from_secs(3_600);
    orchestrator.jetstream.update_stream(&config).await.unwrap();
    eventually("an old handoff to be refused", async || {
        let asked = Handoff { issued_at: two_hours_ago(), ..chat("hello") };
        orchestrator.publish(&asked).await;
        let answer = orchestrator.completion(Kind::Chat, asked.id).await;
        (answer.error?.code == ErrorCode::StaleHandoff).then_some(())
    })
    .await;
}
