//! Memory profiles from the worker's configuration to the gateway (G12, G13).

use std::fs;

use serde_json::json;
use subjects::{Completion, Kind, Status};
use testkit::{
    Answer, Gateway, GatewayProcess, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker, chat,
    typical,
};

/// A worker whose profile may not reach the network is not offered a tool that does. Once the profile may,
/// the tool is called, with the worker's profile and the trace of the handoff.
#[tokio::test]
async fn worker_calls_tools_with_its_profile_and_trace() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let upstream = Gateway::start(vec![Tool::new(
        "status",
        "Shows the state of the git repository.",
        json!({ "type": "object", "properties": { "path": { "type": "string" } } }),
        |_| Answer::text("clean"),
    )])
    .await;
    gateway.install("git", &upstream.url()).await;
    let token = gateway.folder().join("manager.token");
    fs::write(&token, gateway.manager().await).unwrap();
    let model = Model::start_answering(
        |asked: &ModelRequest| match asked.messages().last().unwrap()["role"].as_str() {
            Some("user") if asked.body["tools"].to_string().contains("git__status") => {
                Script::call("git__status", &json!({ "path": "." }))
            }
            Some("user") => Script::say("There is no such tool."),
            _ => Script::say("It is clean."),
        },
        |asked| Script::Say(typical(asked.form().unwrap_or_default()).to_string()),
    )
    .await;
    let worker = Worker::manager(&nats)
        .asking(&model)
        .set("memory.profile", "team-a")
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token.display().to_string());
    let first = worker.clone().start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let ask = async || -> Completion {
        let id = orchestrator.publish(&chat("Show the git status with git.status")).await;
        orchestrator.completion(Kind::Chat, id).await
    };
    let answer = ask().await;
    assert_eq!(answer.message.unwrap().content, "There is no such tool.");
    // A worker keeps the list of tools for a while.
    drop(first);
    let on = Some(json!({ "value": true }));
    gateway.must("PUT", "/api/v1/settings/profile.team-a.network", on).await;
    let _second = worker.start().await;
    let answer = ask().await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert_eq!(upstream.calls().len(), 1);
    let rows = gateway.audit("tool=git.status").await;
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((&row["profile"], &row["trace_id"]), (&json!("team-a"), &json!(answer.trace.trace_id)));
}
