//! The gateway is killed between the effect of a call and its answer, and the call is repeated with the same
//! key.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Tool, eventually};
use tokio::task::JoinSet;

fn call(tool: &str, arguments: &Value, key: &str) -> String {
    let meta = json!({ "dev.cynode/idempotency-key": key });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

async fn tasks(gateway: &GatewayProcess, token: &str) -> usize {
    let (_, answer) = gateway.post_call(token, "db.task.list", json!({})).await;
    answer["result"]["structuredContent"]["items"].as_array().unwrap_or_else(|| panic!("{answer}")).len()
}

/// Built-in tools: effect and answer are one transaction, so whenever the kill happens, there is one effect
/// and one answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_is_created_once_whenever_the_gateway_is_killed() {
    let mut gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    for round in 0..12_u64 {
        let (arguments, key) = (json!({ "title": format!("Round {round}") }), format!("run/{round}"));
        let body = call("db.task.create", &arguments, &key);
        let request = gateway
            .http()
            .post(gateway.url())
            .bearer_auth(&manager)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body.clone());
        let mut sent = JoinSet::new();
        sent.spawn(request.send());
        // From before the call arrives until after its answer.
        tokio::time::sleep(Duration::from_micros(700 * round)).await;
        gateway.start_again().await;
        drop(sent.join_next().await);
        let (_, first) = gateway.post(Some(&manager), body.clone()).await;
        let (_, second) = gateway.post(Some(&manager), body).await;
        assert_eq!(first, second);
        assert!(first["result"]["structuredContent"]["task_id"].is_string(), "{first}");
        assert_eq!(tasks(&gateway, &manager).await, usize::try_from(round).unwrap() + 1, "round {round}");
    }
    let verified = gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!(verified["ok"], true, "{verified}");
}

/// A hundred concurrent calls with one key, over HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_concurrent_calls_with_one_key_create_one_task() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let body = call("db.task.create", &json!({ "title": "Only one" }), "run/1");
    let calls = (0..100).map(|_| gateway.post(Some(&manager), body.clone()));
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(tasks(&gateway, &manager).await, 1);
    let rows = gateway.audit("tool=db.task.create&limit=1000").await;
    let with = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    assert_eq!((rows.len(), with("success"), with("replayed")), (100, 1, 99));
}

/// Not every store accepts every character, so a key with such a character is refused before anything is
/// done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_that_a_store_cannot_hold_is_refused() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    for key in ["", "run\u{0}1", "run\n1", &"k".repeat(257)] {
        let body = call("db.task.create", &json!({ "title": "None" }), key);
        let (_, answer) = gateway.post(Some(&manager), body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{key:?}: {answer}"));
        assert!(message.contains("no control characters"), "{key:?}: {answer}");
    }
    assert_eq!(tasks(&gateway, &manager).await, 0);
}

/// Upstream tools: after a kill during the call the outcome is unknown and the call is not repeated; after a
/// kill following the call, the recorded answer is returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_call_interrupted_by_a_kill_is_in_doubt() {
    let slow = Duration::from_millis(1500);
    let server = Gateway::start(vec![
        Tool::new("slow", "", json!({ "type": "object" }), move |_| {
            Answer::after(slow, Answer::text("done"))
        }),
        Tool::new("fast", "", json!({ "type": "object" }), |_| Answer::text("done")),
    ])
    .await;
    let mut gateway = GatewayProcess::start().await;
    gateway.install("work", &server.url()).await;
    let manager = gateway.manager().await;
    let request = gateway
        .http()
        .post(gateway.url())
        .bearer_auth(&manager)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(call("work.slow", &json!({}), "run/1"));
    let mut sent = JoinSet::new();
    sent.spawn(request.send());
    eventually("the upstream call to run", async || (server.calls().len() == 1).then_some(())).await;
    gateway.start_again().await;
    assert!(sent.join_next().await.unwrap().unwrap().is_err());
    let (_, again) = gateway.post(Some(&manager), call("work.slow", &json!({}), "run/1")).await;
    assert_eq!(again["result"]["structuredContent"]["code"], "in_doubt", "{again}");
    assert_eq!(server.calls().len(), 1);
    // The interrupted call has its audit row with the status `unknown`.
    let rows = gateway.audit("tool=work.slow").await;
    let statuses: Vec<_> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failure", "unknown"]);

    let (_, first) = gateway.post(Some(&manager), call("work.fast", &json!({}), "run/2")).await;
    gateway.start_again().await;
    let (_, second) = gateway.post(Some(&manager), call("work.fast", &json!({}), "run/2")).await;
    assert_eq!(first, second);
    assert_eq!(server.calls().len(), 2, "the recorded answer is returned");
}
