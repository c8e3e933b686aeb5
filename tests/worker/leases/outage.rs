//! A gateway that is away while a lease is wanted.

use serde_json::json;
use subjects::{FindingsStatus, Status, Task};
use testkit::{Model, Script, chat, eventually};
use tokio::sync::watch;

use super::{Stage, judge};
use crate::routing::{routing, with_egress};

/// The manager waits for the gateway before it gives a verification up.
#[tokio::test]
async fn lease_of_an_analyst_is_waited_for() {
    let mut stage = Stage::start().await;
    let task = stage.task("ada", "the build works").await;
    let report = json!({ "task_id": task, "path": "log.txt", "content": "the build works" });
    stage.call("artifact.put", report).await;
    let (answered_turns, answered) = watch::channel(0);
    let verify = Script::call("request_verification", &json!({ "task_id": task }));
    let held = Script::Held { turn: 0, answered, then: Box::new(verify) };
    let model = Model::start_with_structured([held, Script::say("It is done.")], judge).await;
    let manager = stage.worker("project_manager", &model).await;
    let manager = manager.set("agent.assess_input", "false").start().await;
    let _analyst = stage.worker("project_analyst", &model).await.start().await;
    let mut asked = chat("Is it done?");
    // The manager knows the task, so the lease is the first thing that it wants of the gateway.
    asked.context.task = Some(Task {
        id: task.parse().unwrap(),
        name: "of-ada".to_owned(),
        status: None,
        description: None,
        acceptance_criteria: vec!["the build works".to_owned()],
    });
    let (_, lease) = stage.lease("project_manager", "ada", asked.id, None).await;
    stage.orchestrator.publish_under(&asked, &lease).await;
    eventually("the model is asked", async || (!model.turns().is_empty()).then_some(())).await;
    stage.gateway.kill();
    answered_turns.send_replace(1);
    eventually("the gateway is missed", async || {
        manager.metric("pma_tool_failures_total").await.filter(|failures| *failures > 0.0)
    })
    .await;
    stage.gateway.start_again().await;
    let answer = stage.orchestrator.completion(asked.kind(), asked.id).await;
    let [verification] = &answer.verifications[..] else { panic!("{answer:?}") };
    assert_eq!(verification.status, Some(FindingsStatus::Pass), "{verification:?}");
    assert_eq!(answer.message.unwrap().content, "It is done.");
}

/// A gateway that is too slow to renew a lease is waited for like one that is away. It is no slow tool, which
/// would be called twice and no more.
#[tokio::test]
async fn slow_renewal_of_a_lease_fails_no_handoff() {
    let stage = Stage::start_with(&[("leases.lifetime", "1s")]).await;
    let model = Model::start([Script::say("One."), Script::say("Two.")]).await;
    let manager = stage.worker("project_manager", &model).await;
    let manager = manager.set("agent.assess_input", "false").start().await;
    // From here on the manager knows the tools of the user.
    assert_eq!(stage.ask("ada", chat("one")).await.0.message.unwrap().content, "One.");
    let asked = chat("two");
    let (id, lease) = stage.lease("project_manager", "ada", asked.id, None).await;
    eventually("it expires", async || (stage.lease_state(&id).await == "renewable").then_some(())).await;
    stage.gateway.process.freeze();
    stage.orchestrator.publish_under(&asked, &lease).await;
    eventually("the lease is not renewed twice", async || {
        manager.metric("pma_tool_failures_total").await.filter(|failures| *failures >= 3.0)
    })
    .await;
    stage.gateway.process.thaw();
    let answer = stage.orchestrator.completion(asked.kind(), asked.id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert_eq!(answer.message.unwrap().content, "Two.");
}

/// An external model is asked under a lease. If that has expired and the gateway is away, the gateway is
/// waited for: the model is not at fault.
#[tokio::test]
async fn external_model_is_asked_when_the_gateway_is_back() {
    let mut stage = Stage::start_with(&[("leases.lifetime", "1s")]).await;
    let folder = tempfile::tempdir().unwrap();
    let (answered_turns, answered) = watch::channel(0);
    // A call that the worker refuses by itself.
    let refused = Script::call("no__such__tool", &json!({}));
    let held = Script::Held { turn: 0, answered, then: Box::new(refused) };
    let external = Model::start([held, Script::say("Back.")]).await;
    let local = Model::start([Script::say("local")]).await;
    let manager = stage.worker("project_manager", &local).await.set("agent.assess_input", "false");
    let manager = with_egress(manager.set("inference.tries", "2"), &external, folder.path()).start().await;
    let mut asked = chat("hello");
    let preferences = [("prefer_local", json!(false)), ("allowed_external_providers", json!(["v1"]))]
        .map(|(k, v)| routing(k, v));
    asked.context.preferences = Some(preferences.into());
    let (id, lease) = stage.lease("project_manager", "ada", asked.id, None).await;
    stage.orchestrator.publish_under(&asked, &lease).await;
    eventually("the model is asked", async || (!external.turns().is_empty()).then_some(())).await;
    eventually("it expires", async || (stage.lease_state(&id).await == "renewable").then_some(())).await;
    stage.gateway.kill();
    answered_turns.send_replace(1);
    eventually("the gateway is missed", async || {
        manager.metric("pma_tool_failures_total").await.filter(|failures| *failures >= 4.0)
    })
    .await;
    stage.gateway.start_again().await;
    let answer = stage.orchestrator.completion(asked.kind(), asked.id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert_eq!(answer.message.unwrap().content, "Back.");
    assert!(local.asked().is_empty(), "the external model is not given up");
}
