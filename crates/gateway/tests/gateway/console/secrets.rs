//! Texts of others may contain secrets; neither the console nor REST shows them.

use serde_json::json;
use subjects::{Completion, ErrorCode, Failure, FinishReason, Kind, Status, Stop, Trace, Usage};
use testkit::{GatewayProcess, Nats, Orchestrator, Worker, chat, eventually};

use super::work::gateway_with_nats;

const SECRETS: [&str; 3] =
    ["cyn_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6", "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "hunter2-and-more"];

/// The message of a failed handoff quotes a server.
#[tokio::test]
async fn failure_message_shows_no_secret() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let gateway = gateway_with_nats(&nats.url()).await;
    let admin = gateway.administrator().await;
    let id = chat("failed").id;
    let [token, key, password] = SECRETS;
    let message = format!("the server said: Bearer {token}, then {key}, password={password} is wrong");
    let completion = Completion {
        schema_version: 1,
        handoff_id: id,
        kind: Kind::Chat,
        status: Status::Failed,
        message: None,
        finish_reason: FinishReason::Stop,
        tasks: Vec::new(),
        verifications: Vec::new(),
        transcript: Vec::new(),
        resumes_as: None,
        resumes_task: None,
        steps: Vec::new(),
        review: None,
        usage: Usage::default(),
        trace: Trace::new("t", Stop::GoalMet),
        attempts: 1,
        instance: "one".parse().unwrap(),
        error: Some(Failure::new(ErrorCode::Internal, message)),
    };
    let body = serde_json::to_vec(&completion).unwrap();
    orchestrator.client.publish(format!("pma.run.{id}.completion"), body.into()).await.unwrap();
    let page = eventually("the answer", async || {
        let page = admin.get(&format!("/console/handoffs/{id}")).await;
        page.shows("the server said").then_some(page)
    })
    .await;
    let rest = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let over_rest = rest.must("GET", &format!("/api/v1/handoffs/{id}"), None).await;
    assert_ne!(over_rest["answer"], json!(null), "{over_rest}");
    for secret in SECRETS {
        assert!(!page.body.contains(secret), "the page contains {secret}");
        assert!(!over_rest.to_string().contains(secret), "REST returns {secret}: {over_rest}");
    }
}
