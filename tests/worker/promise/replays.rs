//! Replays of dead letters.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use subjects::{ErrorCode, Handoff, HandoffId, Kind, Plan, Status, Work, streams};
use testkit::{
    Answer as ToolAnswer, Errands, Gateway, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker,
    chat, eventually, handoff, typical,
};

use super::ctl;

async fn failed_errand(errands: &Errands, nats: &Nats, orchestrator: &Orchestrator) -> HandoffId {
    // The model fails from the second turn on: two effects have happened by then.
    let worker = errands.worker(nats).start().await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    errands.model.fail_with(Some(503));
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(
        answer.error.map(|error| error.code),
        Some(ErrorCode::InferenceUnavailable),
        "{}",
        worker.log()
    );
    id
}

/// write → the model fails → dead letter → replay: the write happens once and its turn is paid once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_continues_where_the_handoff_failed() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(500)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = failed_errand(&errands, &nats, &orchestrator).await;
    errands.model.fail_with(None);
    let asked_before = errands.asked("x1");
    let _worker = errands.worker(&nats).start().await;
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    let effects = errands.effects().await;
    assert!(Errands::expected_effects("x1").iter().all(|effect| effects[effect] == 1), "{effects:?}");
    assert_eq!(errands.asked("x1")[0], 1, "the first turn was finished and is not paid again");
    assert_eq!(asked_before[0], 1);
}

/// The same if the stream has lost the journal that the replay would continue from.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_without_a_journal_has_no_second_effect() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(500)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = failed_errand(&errands, &nats, &orchestrator).await;
    errands.model.fail_with(None);
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    orchestrator.jetstream.get_stream(streams::RUNS).await.unwrap().purge().await.unwrap();
    let _worker = errands.worker(&nats).start().await;
    let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    let effects = errands.effects().await;
    assert!(Errands::expected_effects("x1").iter().all(|effect| effects[effect] == 1), "{effects:?}");
    assert_eq!(errands.asked("x1")[0], 2, "the turn was made again, since nothing was left of it");
}

/// Two dead letters of one handoff are replayed by two operators.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_has_one_replay() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(500)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = failed_errand(&errands, &nats, &orchestrator).await;
    errands.model.fail_with(None);
    // A second dead letter of the same handoff, as written by an instance that failed at the same time.
    let letter = orchestrator.contents(streams::DEAD).await.remove(0);
    let mut headers = letter.headers.clone();
    headers.insert("Nats-Msg-Id", "another");
    let stored = orchestrator
        .jetstream
        .publish_with_headers(letter.subject.clone(), headers, letter.payload.clone())
        .await
        .unwrap();
    stored.await.unwrap();
    let _workers = [errands.worker(&nats).start().await, errands.worker(&nats).start().await];
    ctl(&nats, &["dead", "replay", "1"]).await;
    ctl(&nats, &["dead", "replay", "2"]).await;
    let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    orchestrator.wait_until_settled().await;
    let effects = errands.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert_eq!(orchestrator.answers().await.len(), 2, "the failure and the replay");
}

/// A dead letter was stored, its worker died, and another worker completed the handoff. The letter is shown
/// as completed and cannot be replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letter_of_a_completed_handoff_is_not_replayed() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    errands.hold_after(1);
    let orchestrator = Orchestrator::connect(&nats).await;
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    // Stops after the dead letter is stored and before the failure is answered.
    let mut first = settings.clone().stopping_at("BeforeAnswer#1").start().await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    errands.model.fail_with(Some(503));
    errands.release();
    eventually("the dead letter", async || (orchestrator.stored(streams::DEAD).await == 1).then_some(()))
        .await;
    let early = ctl(&nats, &["dead", "replay", "1"]).await;
    assert!(early.code != 0 && early.stderr.contains("still being worked on"), "{early:?}");
    first.process.kill();
    errands.model.fail_with(None);
    let _second = settings.start().await;
    assert_eq!(orchestrator.completion(Kind::Chat, id).await.status, Status::Completed);
    let before = orchestrator.answers().await.len();
    let listed = ctl(&nats, &["dead", "ls"]).await;
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert!(listed.stdout.contains("completed"), "{listed:?}");
    assert!(replayed.code != 0 && replayed.stderr.contains("completed"), "{replayed:?}");
    orchestrator.wait_until_settled().await;
    assert_eq!(orchestrator.answers().await.len(), before);
    assert_eq!(errands.asked("x1")[2], 1);
    let effects = errands.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(orchestrator.answer(Kind::Chat, id.replay_id()).await.is_none());
}

/// A replay published by hand while the handoff is in progress is refused and does not affect the handoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_of_a_running_handoff_is_refused() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    errands.hold_after(0);
    let orchestrator = Orchestrator::connect(&nats).await;
    let _workers = [errands.worker(&nats).start().await, errands.worker(&nats).start().await];
    let first = Errands::handoff("x1");
    orchestrator.publish(&first).await;
    eventually("the first turn", async || (errands.asked("x1")[0] == 1).then_some(())).await;
    let replay = Handoff { id: first.id.replay_id(), replays: vec![first.id], ..first.clone() };
    orchestrator.publish(&replay).await;
    let refused = orchestrator.completion(Kind::Chat, replay.id).await.error.unwrap();
    assert_eq!(refused.code, ErrorCode::InvalidHandoff);
    assert!(refused.message.contains("still being worked on"), "{refused:?}");
    errands.release();
    assert_eq!(orchestrator.completion(Kind::Chat, first.id).await.status, Status::Completed);
    assert_eq!(errands.asked("x1"), [1, 1, 1]);
}

/// A plan that failed because of unusable structured output can be replayed when the model works again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_requests_unusable_structured_output_again() {
    let nats = Nats::start();
    let is_broken = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&is_broken);
    let thinks = move |asked: &ModelRequest| match seen.load(Ordering::SeqCst) {
        true => Script::say("I would rather not."),
        false => Script::Say(typical(asked.form().unwrap()).to_string()),
    };
    let model = Model::start_with_structured([Script::say("unused")], thinks).await;
    let create = Tool::new("db.task.create", "Creates a task.", json!({ "type": "object" }), |_| {
        ToolAnswer::task("t-1", "t-1", &[])
    });
    let gateway = Gateway::start(vec![create]).await;
    let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let goal = Plan {
        goal: "publish the pages".to_owned(),
        acceptance_criteria: vec!["The site shows them".to_owned()],
        constraints: Vec::new(),
        task_id: None,
    };
    let id = orchestrator.publish(&handoff(Work::Plan(goal))).await;
    let failed = orchestrator.completion(Kind::Plan, id).await;
    assert_eq!(failed.error.map(|error| error.code), Some(ErrorCode::InferenceFailed));
    orchestrator.wait_until_settled().await;
    let asked = model.asked().len();
    is_broken.store(false, Ordering::SeqCst);
    assert_eq!(ctl(&nats, &["dead", "replay", "1"]).await.code, 0);
    let answer = orchestrator.completion(Kind::Plan, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    assert!(model.asked().len() > asked, "the model was asked again");
}

/// A reply that is cut off in a call.
fn cut() -> Script {
    let function = json!({ "name": "db__task__create", "arguments": "{\"title\":\"water-pl" });
    let call = json!([{ "index": 0, "id": "c1", "function": function }]);
    let delta = json!({ "content": "I create it.", "tool_calls": call });
    let event = |delta: Value, finish: Value| {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }).to_string()
    };
    Script::Raw(vec![event(delta, json!(null)), event(json!({}), json!("length"))])
}

/// The second reply in a row that was cut off in a call ended the handoff, so only that one is asked for
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_asks_again_for_the_cut_call_that_ended_the_handoff() {
    let create = || Script::call("db__task__create", &json!({ "title": "water-plants" }));
    let done = || Script::say("It is there.");
    for turns in [[cut(), cut(), create(), done()], [create(), cut(), cut(), done()]] {
        let nats = Nats::start();
        let tool = Tool::new("db.task.create", "Creates a task.", json!({ "type": "object" }), |_| {
            ToolAnswer::task("t-1", "water-plants", &[])
        });
        let gateway = Gateway::start(vec![tool]).await;
        let model = Model::start(turns).await;
        let _worker = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let id = orchestrator.publish(&chat("create a task: water the plants")).await;
        let failed = orchestrator.completion(Kind::Chat, id).await;
        let error = failed.error.expect("it failed");
        assert!(error.message.contains("cut off, twice"), "{error:?}");
        orchestrator.wait_until_settled().await;
        let asked = model.turns().len();
        assert_eq!(ctl(&nats, &["dead", "replay", "1"]).await.code, 0);
        let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
        assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
        assert_eq!((model.turns().len(), gateway.calls().len()), (4, 1), "{asked} turns were paid before");
    }
}

/// The manager ran out of time while it waited for an analyst, and the analyst finished later. The replay of
/// the manager uses those findings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_uses_the_findings_of_the_earlier_verification() {
    let nats = Nats::start();
    let turns =
        [Script::call("request_verification", &json!({ "task_id": "t-1" })), Script::say("It is verified.")];
    let model = Model::start(turns).await;
    let task = Tool::new("db.task.get", "Reads a task.", json!({ "type": "object" }), |_| {
        ToolAnswer::task("t-1", "t-1", &["it is done"])
    });
    let finding =
        Tool::new("db.finding.create", "Records.", json!({ "type": "object" }), |_| ToolAnswer::text("ok"));
    let gateway = Gateway::start(vec![task, finding]).await;
    let manager = Worker::manager(&nats).asking(&model).calling(&gateway).set("analysts.enabled", "true");
    let first = manager.clone().set("agent.max_turn", "8s").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("Is t-1 done?")).await;
    let failed = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(failed.error.map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
    // Only a manager can acknowledge the failed handoff: it must do so before it is killed.
    eventually("a queue with the verification alone", async || {
        (orchestrator.queued().await == 1).then_some(())
    })
    .await;
    drop(first);
    // No analyst was running to receive the cancel of the verification.
    let _analyst = Worker::analyst(&nats).asking(&model).calling(&gateway).start().await;
    orchestrator.wait_until_settled().await;
    let recorded = || gateway.calls().iter().filter(|call| call.name == "db.finding.create").count();
    assert_eq!(recorded(), 1);
    let _manager = manager.start().await;
    assert_eq!(ctl(&nats, &["dead", "replay", "1"]).await.code, 0);
    let answer = orchestrator.completion(Kind::Chat, id.replay_id()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    assert_eq!((answer.verifications.len(), recorded()), (1, 1), "one verification, recorded once");
}
