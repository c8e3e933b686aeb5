//! Calls in both eras and over both transports: results, progress, errors.

use std::sync::atomic::{AtomicU64, Ordering};

use mcp::IDEMPOTENCY_KEY;
use serde_json::{Map, Value, json};
use testkit::{ScriptedServer, eventually};
use tokio::sync::mpsc;
use upstream::{Error, Fate, Progress, State, Upstream};

use crate::support::{
    call, call_json, call_with, gateway, http, legacy_gateway, object, stdio, text, upstream,
};

async fn check(upstream: &Upstream, version: &str) {
    assert_eq!(upstream.health().state, State::Idle);
    let result = call_with(upstream, "echo", json!({"letters": "äß", "number": 2.5})).await.unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(text(&result)).unwrap(),
        json!({"letters": "äß", "number": 2.5})
    );
    let health = upstream.health();
    assert_eq!((health.state, health.version.as_deref()), (State::Up, Some(version)), "{health:?}");
    assert_eq!((health.in_flight, health.restarts, health.last_error), (0, 0, None));
}

#[tokio::test]
async fn a_tool_is_called_over_http_in_either_era() {
    let newer = gateway().await;
    check(&upstream(http(newer.url())), "2026-07-28").await;
    let older = legacy_gateway().await;
    check(&upstream(http(older.url())), "2025-11-25").await;
    assert!(newer.calls()[0].session.is_none() && older.calls()[0].session.is_some());
}

#[tokio::test]
async fn a_tool_is_called_over_http_in_the_older_era_without_a_session() {
    for streamed in [false, true] {
        let script = |request: &Value| match request["method"].as_str() {
            Some("tools/list") => {
                json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}, "x": 1}]})
            }
            _ => {
                let arguments = request["params"]["arguments"].to_string();
                json!({"content": [{"type": "text", "text": arguments}]})
            }
        };
        let server = ScriptedServer::start_older(streamed, script).await;
        let upstream = upstream(http(server.url()));
        check(&upstream, "2025-11-25").await;
        assert_eq!(upstream.tools().await.unwrap()[0]["x"], json!(1));
        let methods: Vec<_> = server.seen().into_iter().map(|message| message["method"].clone()).collect();
        assert_eq!(
            methods,
            ["server/discover", "initialize", "notifications/initialized", "tools/call", "tools/list"]
        );
    }
}

#[tokio::test]
async fn a_tool_is_called_in_a_process_of_either_era() {
    check(&upstream(stdio(&["normal"])), "2026-07-28").await;
    check(&upstream(stdio(&["legacy"])), "2025-11-25").await;
}

#[tokio::test]
async fn a_process_that_accepts_only_initialize_is_called_in_the_older_era() {
    let upstream = upstream(stdio(&["only-initialize"]));
    assert_eq!(text(&call(&upstream, "echo").await.unwrap()), "old");
    let health = upstream.health();
    assert_eq!((health.version.as_deref(), health.restarts), (Some("2025-06-18"), 0), "{health:?}");
}

#[tokio::test]
async fn meta_is_passed_on_without_the_reserved_keys() {
    for gateway in [gateway().await, legacy_gateway().await] {
        let meta = json!({
            "traceparent": "00-1-2-01",
            IDEMPOTENCY_KEY: "once",
            "progressToken": "mine",
            "io.modelcontextprotocol/protocolVersion": "1999-01-01",
        });
        let upstream = upstream(http(gateway.url()));
        for _ in 0..2 {
            upstream.call("echo", Map::new(), object(meta.clone()), None).await.unwrap();
        }
        let called = gateway.calls();
        assert_eq!(called[0].traceparent.as_deref(), Some("00-1-2-01"));
        assert_eq!(called[0].idempotency_key.as_deref(), Some("once"));
        assert!(called[1].version.as_deref().is_some_and(|version| version.starts_with("202")), "{called:?}");
    }
}

#[tokio::test]
async fn the_error_of_a_tool_is_a_result() {
    let gateway = gateway().await;
    let result = call(&upstream(http(gateway.url())), "fail").await.unwrap();
    assert_eq!((result.is_error, text(&result)), (Some(true), "it did not work"));
}

#[tokio::test]
async fn a_rejection_is_answered_and_its_text_is_sanitized() {
    for gateway in [gateway().await, legacy_gateway().await] {
        let upstream = upstream(http(gateway.url()));
        let failure = call(&upstream, "reject").await.unwrap_err();
        assert_eq!(failure.fate, Fate::Answered);
        let Error::Rejected { code, message } = &failure.error else { panic!("{failure:?}") };
        assert_eq!((*code, message.as_str()), (Some(-32602), "not[2J so"));
        assert_eq!(gateway.calls().len(), 1, "not repeated");
        assert_eq!(upstream.health().last_error, None, "nothing is wrong with the server");
    }
}

#[tokio::test]
async fn a_tool_that_requires_input_fails() {
    let failure = call(&upstream(stdio(&["normal"])), "ask").await.unwrap_err();
    assert!(matches!(failure.error, Error::InputRequired), "{failure:?}");
    assert_eq!(failure.fate, Fate::Answered);
}

#[tokio::test]
async fn progress_arrives_in_order_and_before_the_result() {
    for mode in ["normal", "legacy"] {
        let upstream = upstream(stdio(&[mode]));
        let (sender, mut receiver) = mpsc::channel(8);
        upstream.call("progress", Map::new(), Map::new(), Some(sender)).await.unwrap();
        let mut seen = Vec::new();
        // All progress has arrived when the call returns.
        while let Ok(progress) = receiver.try_recv() {
            seen.push(progress);
        }
        let step =
            |progress: f64| Progress { progress, total: Some(100.0), message: Some(format!("{progress} %")) };
        assert_eq!(seen, [step(0.0), step(50.0), step(100.0)]);
    }
}

#[tokio::test]
async fn progress_over_http_arrives_in_order_and_before_the_result() {
    let server = ScriptedServer::start(true, |request| {
        let token = &request["params"]["_meta"]["progressToken"];
        let notification =
            |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
        let step = |step: u32| {
            notification("notifications/progress", json!({"progressToken": token, "progress": step}))
        };
        let log = notification("notifications/message", json!({"level": "info", "data": "passed over"}));
        json!({"before": [step(0), log, step(50), step(100)], "content": []})
    })
    .await;
    let upstream = upstream(http(server.url()));
    let (sender, mut receiver) = mpsc::channel(8);
    upstream.call("progress", Map::new(), Map::new(), Some(sender)).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(progress) = receiver.try_recv() {
        seen.push(progress.progress);
    }
    assert_eq!(seen, [0.0, 50.0, 100.0]);
    // Progress without a receiver is dropped, and a full channel does not block the call.
    call(&upstream, "progress").await.unwrap();
    let (sender, _receiver) = mpsc::channel(1);
    upstream.call("progress", Map::new(), Map::new(), Some(sender)).await.unwrap();
}

#[tokio::test]
async fn requests_of_the_server_are_declined() {
    let server = ScriptedServer::start(true, |_| {
        let request = |id: &str, method: &str, params: Value| {
            json!({
                "jsonrpc": "2.0", "id": id, "method": method, "params": params,
            })
        };
        let message = json!({"role": "user", "content": {"type": "text", "text": "think for me"}});
        let form = json!({
            "mode": "form", "message": "your password?",
            "requestedSchema": {"type": "object", "properties": {}},
        });
        json!({
            "before": [
                request("roots", "roots/list", json!({})),
                request("sampling", "sampling/createMessage", json!({"messages": [message], "maxTokens": 9})),
                request("elicitation", "elicitation/create", form),
            ],
            "content": [],
        })
    })
    .await;
    let upstream = upstream(http(server.url()));
    call(&upstream, "curious").await.unwrap();
    let answer = async |id: &str| {
        let answer = || server.seen().into_iter().find(|message| message["id"] == id);
        eventually("it is answered", async || answer()).await
    };
    assert_eq!(answer("roots").await["error"]["code"], json!(-32601));
    assert_eq!(answer("sampling").await["error"]["code"], json!(-32601));
    assert_eq!(answer("elicitation").await["result"]["action"], json!("decline"));
    let discover = &server.seen()[0];
    assert_eq!(
        discover["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"],
        json!({}),
        "{discover}"
    );
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let upstream = upstream(stdio(&["normal"]));
    let calls = async || call_json(&upstream, "process").await["calls"].as_u64().unwrap();
    let before = calls().await;
    let asked = AtomicU64::new(0);
    tokio::select! {
        result = call(&upstream, "hang") => panic!("{result:?}"),
        () = eventually("the call runs", async || {
            let asked = asked.fetch_add(1, Ordering::Relaxed) + 1;
            (calls().await > before + asked).then_some(())
        }) => {}
    }
    eventually("the call is cancelled", async || (calls().await > 1000).then_some(())).await;
    for gateway in [gateway().await, legacy_gateway().await] {
        let upstream = crate::support::upstream(http(gateway.url()));
        call(&upstream, "echo").await.unwrap();
        tokio::select! {
            result = call(&upstream, "hang") => panic!("{result:?}"),
            () = eventually("the call runs", async || (gateway.calls().len() == 2).then_some(())) => {}
        }
        eventually("the call is cancelled", async || (gateway.cancelled_calls() == 1).then_some(())).await;
    }
}
