use serde_json::json;
use subjects::{Kind, Status};
use testkit::{GatewayProcess, Model, Nats, Orchestrator, Script, Worker, chat, eventually};

/// Attempt 1 reads and dies before its turn is stored. In attempt 2 the model chooses a write instead. Both are the first
/// call of their attempt; the write must not be refused because the read used its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_model_may_choose_another_call() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let token = gateway.folder().join("manager.token");
    std::fs::write(&token, gateway.manager().await).unwrap();
    let model = Model::start([
        Script::call("db__task__list", &json!({})),
        Script::call("db__task__create", &json!({ "title": "from attempt 2" })),
        Script::say("created"),
    ])
    .await;
    let settings = Worker::manager(&nats)
        .asking(&model)
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token.display().to_string())
        .set("agent.assess_input", "false")
        .set("worker.ack_wait", "1s");
    let orchestrator = Orchestrator::connect(&nats).await;
    // The turn cannot be stored, so the next attempt asks anew.
    let mut first = settings.clone().stopping_at("BeforeAppend#1").start().await;
    let id = orchestrator.publish(&chat("create a task")).await;
    eventually("the read to have run", async || {
        let rows = gateway.must("GET", "/api/v1/audit?tool=db.task.list", None).await;
        rows.as_array().is_some_and(|rows| !rows.is_empty()).then_some(())
    })
    .await;
    first.process.kill();
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    assert_eq!(answer.tasks.len(), 1, "the write was made: {:?}", answer.trace.steps);
}
