//! Answers say what attempts did whose workers died.

use serde_json::json;
use subjects::{ErrorCode, Kind, Status, Subject};
use testkit::{Model, Script, chat, eventually};

use super::Stage;

/// A handoff that is given up after it created a task: the answer names the task and what was paid.
#[tokio::test]
async fn answer_of_a_poisoned_handoff_says_what_was_done() {
    let stage = Stage::start_delivering_again_after("2s", &[]).await;
    let create = json!({ "name": "done-before" });
    let model = Model::start([Script::call("db__task__create", &create), Script::say("Created.")]).await;
    let settings = stage.worker("project_manager", &model).await;
    let settings = settings.set("worker.max_attempts", "1");
    let handoff = chat("Create a task: done-before");
    let (_, lease) = stage.lease("project_manager", "ada", handoff.id, None).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    // The first attempt makes progress: the result of the call is stored while the model answers.
    for point in ["ModelAnswered#2"].into_iter().chain(std::iter::repeat_n("BeforeModel#1", 9)) {
        let mut worker = settings.clone().stopping_at(point).start().await;
        let stopped = eventually("it stops, or the handoff is answered", async || {
            let stopped = worker.log().contains("\"stops\":true").then_some(true);
            let answered = stage.orchestrator.answer(Kind::Chat, handoff.id).await.map(|_| false);
            stopped.or(answered)
        });
        let stopped = stopped.await;
        worker.process.kill();
        if !stopped {
            break;
        }
    }
    let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!(answer.error.as_ref().map(|error| error.code), Some(ErrorCode::Poisoned), "{answer:?}");
    assert_eq!(answer.tasks.len(), 1, "{answer:?}");
    // The preferences were read, and the task created.
    assert_eq!((answer.usage.model_calls, answer.usage.tool_calls), (1, 2), "{answer:?}");
    assert!(answer.usage.prompt_tokens > 0, "{answer:?}");
}

/// A handoff that is cancelled when the worker that created a task is dead: the answer names the task.
#[tokio::test]
async fn answer_of_a_cancelled_handoff_says_what_a_dead_worker_did() {
    let stage = Stage::start_delivering_again_after("5s", &[]).await;
    let create = json!({ "name": "done-before" });
    let model = Model::start([Script::call("db__task__create", &create), Script::say("Created.")]).await;
    let settings = stage.worker("project_manager", &model).await;
    let mut first = settings.clone().stopping_at("ModelAnswered#2").start().await;
    let handoff = chat("Create a task: done-before");
    let (_, lease) = stage.lease("project_manager", "ada", handoff.id, None).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    eventually("it stops", async || first.log().contains("\"stops\":true").then_some(())).await;
    let _second = settings.start().await;
    let cancel = Subject::Cancel(handoff.id).to_string();
    stage.orchestrator.client.publish(cancel, "".into()).await.unwrap();
    stage.orchestrator.client.flush().await.unwrap();
    first.process.kill();
    let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!(answer.status, Status::Cancelled, "{answer:?}");
    assert_eq!((answer.tasks.len(), answer.usage.model_calls), (1, 1), "{answer:?}");
}
