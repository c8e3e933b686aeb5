//! The gateway refuses the worker's own token.

use std::{fs, time::Duration};

use serde_json::json;
use subjects::{Kind, Status, streams};
use testkit::{Errands, GatewayProcess, Nats, Orchestrator, eventually};

async fn revoke_all(gateway: &GatewayProcess) {
    let tokens = gateway.must("GET", "/api/v1/tokens", None).await;
    for token in tokens.as_array().expect("tokens") {
        if token["agent"] == json!("project_manager") {
            let id = token["id"].as_str().expect("an id");
            gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
        }
    }
}

/// A worker whose token is revoked fails no handoff: it is not ready, pulls nothing, hands back its handoffs,
/// and continues when the file contains a valid token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_token_stops_pulling_and_fails_no_handoff() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    errands.hold_after(0);
    let token = errands.gateway.folder().join("manager.token");
    let worker = errands.worker(&nats).set("worker.ack_wait", "2s").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let in_work = orchestrator.publish(&Errands::handoff("x1")).await;
    eventually("the first turn", async || (errands.asked("x1")[0] == 1).then_some(())).await;
    revoke_all(&errands.gateway).await;
    errands.release();
    eventually("/readyz to report 503", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, why) = worker.get("/readyz").await;
    assert!(why.contains("token") && why.contains(&token.display().to_string()), "{why}");
    assert!(worker.log().contains("token"), "the log names the token");
    let mut queued = Vec::new();
    for n in 0..5 {
        queued.push(orchestrator.publish(&Errands::handoff(&format!("q{n}"))).await);
    }
    // Long enough: without the check, each handoff would fail within milliseconds.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(orchestrator.answers().await.len(), 0, "nothing is answered");
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    assert!(orchestrator.consumer(Kind::Chat).await.num_pending >= 4, "nothing is pulled");
    fs::write(&token, errands.gateway.manager().await).unwrap();
    for id in queued.into_iter().chain([in_work]) {
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    }
    assert_eq!(errands.asked("x1"), [1, 1, 1], "the first turn was stored before the token was refused");
    eventually("/readyz to report 200", async || (worker.get("/readyz").await.0 == 200).then_some(())).await;
}
