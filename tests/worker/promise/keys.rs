//! An idempotency key is never used for two calls.

use std::time::Duration;

use serde_json::json;
use subjects::{Kind, Status};
use testkit::{
    Answer, Gateway, GatewayProcess, Model, Nats, Orchestrator, Script, Tool, Worker, chat, eventually,
};

/// Attempt 1 makes a read call and dies before its turn is stored. In attempt 2 the model chooses a write
/// instead. Both are the first call of their attempt; the write must not be refused because the read used its
/// key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_model_may_choose_another_call() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let nothing = json!({ "type": "object" });
    let upstream = Gateway::start(vec![
        Tool::new("look", "Looks something up.", nothing.clone(), |_| {
            Answer::after(Duration::from_secs(2), Answer::text("seen"))
        })
        .read_only(),
        Tool::new("write", "Writes something down.", nothing, |_| Answer::text("written")),
    ])
    .await;
    let installed = json!({
        "namespace": "git", "transport": { "http": { "url": upstream.url() } }, "trust_first": true,
    });
    gateway.must("POST", "/api/v1/upstreams", Some(installed)).await;
    let token = gateway.folder().join("manager.token");
    std::fs::write(&token, gateway.manager().await).unwrap();
    let model = Model::start([
        Script::call("git__look", &json!({})),
        Script::call("git__write", &json!({})),
        Script::say("written down"),
    ])
    .await;
    let settings = Worker::manager(&nats)
        .asking(&model)
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token.display().to_string())
        .set("agent.assess_input", "false")
        .set("worker.ack_wait", "1s");
    let orchestrator = Orchestrator::connect(&nats).await;
    // The turn is not stored, so the next attempt requests it again.
    let mut first = settings.clone().stopping_at("BeforeAppend#1").start().await;
    let id = orchestrator.publish(&chat("write it down")).await;
    eventually("the read", async || (upstream.calls().len() == 1).then_some(())).await;
    first.process.kill();
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    let called: Vec<String> = upstream.calls().into_iter().map(|call| call.name).collect();
    assert_eq!(called, ["look", "write"], "{:?}", answer.trace.steps);
}
