//! P16: what the gateway rejects is final, and the worker checks the allowlist of its role before it calls.

use std::fs;

use serde_json::{Value, json};
use subjects::{Act, ErrorCode, Kind, Status, StepOutcome, Stop, streams};
use testkit::{Answer, Gateway, GatewayProcess, Model, Nats, Orchestrator, Script, Tool, Worker, chat};

async fn create_task(gateway: &GatewayProcess, user: &str) -> String {
    let client = gateway.agent(&gateway.manager().await);
    let new = json!({ "name": format!("of-{user}"), "user_id": user });
    let created = gateway.call(&client, "db.task.create", new).await.unwrap().structured.unwrap();
    created["task_id"].as_str().unwrap().to_owned()
}

/// A rejected call is neither repeated nor worked around: the model is not asked again, and the answer says
/// what was rejected and why.
#[tokio::test]
async fn rejected_call_ends_the_handoff() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let of_eve = create_task(&gateway, "eve").await;
    let rule = json!({ "effect": "deny", "agent": "project_manager", "tool": "db.task.create" });
    gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    // One turn for each handoff.
    let model = Model::start([
        Script::say("Hello."),
        Script::call("db__task__create", &json!({ "name": "denied" })),
        Script::call("db__project__list", &json!({})),
        Script::call("persona__list", &json!({})),
        Script::call("db__task__get", &json!({ "task_id": of_eve })),
        Script::say("never said"),
    ])
    .await;
    let manager = Worker::manager(&nats).asking(&model).calling_process(&gateway).await;
    let _manager = manager.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    // The worker lists the tools, and does not list them again when an administrator changes them.
    let id = orchestrator.publish(&chat("Hello")).await;
    assert_eq!(orchestrator.completion(Kind::Chat, id).await.status, Status::Completed);
    let change = async |tool: &str, change: Value| {
        gateway.must("PATCH", &format!("/api/v1/tools/{tool}"), Some(change)).await;
    };
    change("db.project.list", json!({ "enabled": false })).await;
    change("persona.list", json!({ "scope": "sandbox" })).await;
    for (user, tool, error_type, why) in [
        (None, "db.task.create", "rule", "denied by access rule"),
        (None, "db.project.list", "disabled", "Unknown tool: db.project.list"),
        (None, "persona.list", "out_of_scope", "Unknown tool: persona.list"),
        (Some("ada"), "db.task.get", "mismatched_id", "task_id is outside the scope of this token or lease"),
    ] {
        let handoff = chat(&format!("Call {tool}"));
        match user {
            None => {
                orchestrator.publish(&handoff).await;
            }
            Some(user) => {
                let lease = json!({ "agent": "project_manager", "user_id": user, "handoff_id": handoff.id });
                orchestrator.publish_under(&handoff, &gateway.lease(lease).await.1).await;
            }
        }
        let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
        let error = answer.error.as_ref().unwrap_or_else(|| panic!("{tool}: {answer:?}"));
        let expected = (Status::Failed, ErrorCode::ToolRejected, Stop::ToolFailure);
        assert_eq!((answer.status, error.code, answer.trace.stop), expected, "{tool}: {answer:?}");
        assert!(error.message.contains(tool) && error.message.contains(why), "{tool}: {error:?}");
        let step = answer.trace.steps.iter().rfind(|step| step.act == Act::Tool).unwrap();
        assert_eq!((step.name.as_str(), step.outcome), (tool, StepOutcome::Rejected), "{step:?}");
        let denied = gateway.audit(&format!("trace_id={}&decision=deny", answer.trace.trace_id)).await;
        let [row] = &denied[..] else { panic!("{tool}: {denied:?}") };
        let recorded = ["tool", "error_type", "agent"].map(|member| row[member].clone());
        assert_eq!(recorded, [tool, error_type, "project_manager"]);
    }
    assert_eq!(model.turns().len(), 5);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0, "a replay would work around the rejection");
}

/// A verification looks the task up; if the gateway rejects that, the model is not asked to go on without.
#[tokio::test]
async fn rejected_call_of_a_verification_ends_the_handoff() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let task = create_task(&gateway, "ada").await;
    let rule = json!({ "effect": "deny", "agent": "project_manager", "tool": "db.task.get" });
    gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    let verify = Script::call("request_verification", &json!({ "task_id": task }));
    let model = Model::start([verify, Script::say("It is verified.")]).await;
    let manager = Worker::manager(&nats).asking(&model).set("analysts.enabled", "true");
    let _manager = manager.calling_process(&gateway).await.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("Is it done?")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.as_ref().map(|error| error.code), Some(ErrorCode::ToolRejected), "{answer:?}");
    assert_eq!(model.turns().len(), 1);
}

/// A manager does not call what its role may not call, though the gateway would permit it: it has the token
/// of a sandbox. The model is told, and the handoff goes on.
#[tokio::test]
async fn tool_outside_the_allowlist_of_the_role_is_not_called() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let upload =
        Tool::new("upload", "Uploads a text.", json!({ "type": "object" }), |_| Answer::text("kept"));
    let web = Gateway::start(vec![upload]).await;
    gateway.install("web", &web.url()).await;
    let token = gateway.bound("sandbox", "ada", &create_task(&gateway, "ada").await).await;
    assert!(gateway.tools(&token).await.contains(&"web.upload".to_owned()));
    let file = gateway.folder().join("sandbox.token");
    fs::write(&file, &token).unwrap();
    let model = Model::start([Script::call("web__upload", &json!({})), Script::say("I cannot.")]).await;
    let manager = Worker::manager(&nats).asking(&model).set("gateway.url", gateway.url());
    let _manager = manager.set("gateway.token_file", file.display().to_string()).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("Upload this")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert_eq!(answer.message.unwrap().content, "I cannot.");
    let offered = &answer.trace.tools;
    assert!(!offered.is_empty() && !offered.contains(&"web.upload".to_owned()), "{offered:?}");
    let last = model.turns().pop().unwrap();
    let told = last.messages().last().unwrap()["content"].as_str().unwrap();
    assert!(told.contains("there is no such tool"), "{told}");
    assert!(web.calls().is_empty() && gateway.audit("tool=web.*").await.is_empty());
}
