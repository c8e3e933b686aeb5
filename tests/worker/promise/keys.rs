//! An idempotency key is never used for two calls.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use subjects::{Kind, Status, streams::RUNS};
use testkit::{
    Answer, Gateway, GatewayProcess, Model, Nats, Orchestrator, Script, Tool, Worker, WorkerBuilder, chat,
    eventually,
};

/// Attempt 1 makes a read call and dies before its turn is stored. In attempt 2 the model chooses a write
/// instead. Both are the first call of their attempt; the write must not be refused because the read used its
/// key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_model_may_choose_another_call() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let (upstream, token) = install_upstream(&gateway, Duration::from_secs(2)).await;
    let model = Model::start([
        Script::call("git__look", &json!({})),
        Script::call("git__write", &json!({})),
        Script::say("written down"),
    ])
    .await;
    let settings = settings(&nats, &gateway, &model, &token);
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

/// Attempt 1 reads, writes and dies, and the stream loses its journal. In attempt 2 the model writes at once:
/// the same call has another number, and must have no second effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_whose_journal_was_lost_has_no_second_effect() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let (upstream, token) = install_upstream(&gateway, Duration::ZERO).await;
    let model = Model::start([
        Script::call("git__look", &json!({})),
        Script::call("git__write", &json!({})),
        Script::call("git__write", &json!({})),
        Script::say("written down"),
    ])
    .await;
    let settings = settings(&nats, &gateway, &model, &token);
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut first = settings.clone().stopping_at("BeforeModel#3").start().await;
    let id = orchestrator.publish(&chat("write it down")).await;
    eventually("the write", async || (upstream.calls().len() == 2).then_some(())).await;
    first.process.kill();
    let jetstream = async_nats::jetstream::new(nats.client().await);
    jetstream.get_stream(RUNS).await.unwrap().purge().await.unwrap();
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    let called: Vec<String> = upstream.calls().into_iter().map(|call| call.name).collect();
    assert_eq!(called, ["look", "write"], "{:?}", answer.trace.steps);
}

/// Attempt 1 reads and dies, and the stream loses its journal. Attempt 2 counts from one again; its reads
/// must have other keys, since it may read something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_after_a_lost_journal_has_a_new_key() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let (upstream, token) = install_upstream(&gateway, Duration::ZERO).await;
    let model = Model::start([
        Script::call("git__look", &json!({ "page": 1 })),
        Script::call("git__look", &json!({ "page": 2 })),
        Script::say("read"),
    ])
    .await;
    let settings = settings(&nats, &gateway, &model, &token);
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut first = settings.clone().stopping_at("BeforeModel#2").start().await;
    let id = orchestrator.publish(&chat("read it")).await;
    eventually("the first read", async || (upstream.calls().len() == 1).then_some(())).await;
    first.process.kill();
    let jetstream = async_nats::jetstream::new(nats.client().await);
    jetstream.get_stream(RUNS).await.unwrap().purge().await.unwrap();
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    let pages: Vec<_> = upstream.calls().into_iter().map(|call| call.arguments["page"].clone()).collect();
    assert_eq!(pages, [1, 2], "{:?}", answer.trace.steps);
}

/// Installs an MCP server with a tool that reads, which takes as long, and one that writes. Returns it and a
/// manager's token file.
async fn install_upstream(gateway: &GatewayProcess, reading: Duration) -> (Gateway, PathBuf) {
    let nothing = json!({ "type": "object" });
    let upstream = Gateway::start(vec![
        Tool::new("look", "Looks something up.", nothing.clone(), move |_| {
            Answer::after(reading, Answer::text("seen"))
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
    (upstream, token)
}

fn settings(nats: &Nats, gateway: &GatewayProcess, model: &Model, token: &Path) -> WorkerBuilder {
    Worker::manager(nats)
        .asking(model)
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token.display().to_string())
        .set("agent.assess_input", "false")
        .set("worker.ack_wait", "1s")
}
