//! A lease that is about one task, and a model that names another one.

use serde_json::json;
use subjects::{Kind, Status};
use testkit::{Model, Script, chat};

use super::{Stage, judge};

/// A step of a workflow is worked on under such a lease: a model that names the task by its name, or another
/// task, is told so and goes on.
#[tokio::test]
async fn verification_of_another_task_is_refused_with_the_reason() {
    let stage = Stage::start().await;
    let own = stage.task("ada", "the build works").await;
    let other = stage.task("eve", "the build works").await;
    let verify = |task: &str| Script::call("request_verification", &json!({ "task_id": task }));
    let turns = [verify(&other), verify("of-ada"), Script::say("I cannot tell.")];
    let model = Model::start_with_structured(turns, judge).await;
    let _manager = stage.worker("project_manager", &model).await.start().await;
    let handoff = chat("Is the task done?");
    let (_, lease) = stage.lease("project_manager", "ada", handoff.id, Some(&own)).await;
    stage.orchestrator.publish_under(&handoff, &lease).await;
    let answer = stage.orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert!(answer.verifications.is_empty(), "{answer:?}");
    let turns = model.turns();
    assert_eq!(turns.len(), 3);
    for asked in &turns[1..] {
        let told = asked.messages().last().unwrap()["content"].as_str().unwrap();
        assert!(told.contains(&format!("Error: this is about task_id {own} alone")), "{told}");
    }
}
