//! Listing and calling tools.

use std::{collections::HashSet, time::Duration};

use mcp::{Call, Client, Error, Options};
use serde_json::json;
use testkit::{Answer, Gateway, Tool, eventually};
use tokio::task::JoinSet;

use crate::support::{call, call_with, chain, client, options, tool};

fn task_tools() -> Vec<Tool> {
    let schema = json!({
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": false,
    });
    vec![
        Tool::new("db.task.get", "Reads one task by id", schema, |arguments| {
            Answer::structured(json!({"id": arguments["id"], "state": "open"}))
        })
        .read_only(),
        tool("note.add", || Answer::text("noted")),
    ]
}

async fn lists_and_calls(gateway: &Gateway, version: &str) {
    let client = client(gateway.url());
    let tools = client.tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.read_only)).collect();
    assert_eq!(names, [("db.task.get", true), ("note.add", false)]);
    assert_eq!(tools[0].description, "Reads one task by id");
    assert_eq!(tools[0].input_schema["required"], json!(["id"]));

    let reply = client
        .call(Call {
            idempotency_key: Some("run-1/step-2"),
            traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ..call_with("db.task.get", json!({"id": "t-7"}))
        })
        .await
        .unwrap();
    assert_eq!(reply.structured, Some(json!({"id": "t-7", "state": "open"})));
    assert!(!reply.is_error && !reply.truncated);

    let [called] = gateway.calls().try_into().unwrap();
    assert_eq!(called.version.as_deref(), Some(version));
    assert_eq!(called.idempotency_key.as_deref(), Some("run-1/step-2"));
    assert_eq!(
        called.traceparent.as_deref(),
        Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    );
    assert_eq!(client.call(call("note.add")).await.unwrap().text, "noted");
}

/// G12: every call names the profile, with and without the fast path, in both eras.
#[tokio::test]
async fn calls_carry_the_memory_profile() {
    for gateway in [Gateway::start(task_tools()).await, Gateway::start_legacy(task_tools()).await] {
        for fast_path in [true, false] {
            let profile = Some("team-a".to_owned());
            let client = Client::new(Options { fast_path, profile, ..options(gateway.url()) }).unwrap();
            client.call(call("note.add")).await.unwrap();
        }
        client(gateway.url()).call(call("note.add")).await.unwrap();
        let named: Vec<_> = gateway.calls().into_iter().map(|call| call.profile).collect();
        assert_eq!(named, [Some("team-a".to_owned()), Some("team-a".to_owned()), None]);
    }
    let profile = Some("two\nlines".to_owned());
    let error = Client::new(Options { profile, ..options("http://127.0.0.1:1".to_owned()) }).unwrap_err();
    assert!(matches!(error, Error::Options(_)), "{error:?}");
}

#[tokio::test]
async fn the_newer_era_is_used_if_the_server_supports_it() {
    lists_and_calls(&Gateway::start(task_tools()).await, "2026-07-28").await;
}

#[tokio::test]
async fn the_older_era_is_used_if_the_server_does_not_support_the_newer() {
    lists_and_calls(&Gateway::start_legacy(task_tools()).await, "2025-11-25").await;
}

#[tokio::test]
async fn every_page_is_listed() {
    let tools = (0..120).map(|number| tool(&format!("tool.{number}"), || Answer::text("x"))).collect();
    let gateway = Gateway::start(tools).await;
    let listed = client(gateway.url()).tools().await.unwrap();
    let names: HashSet<_> = listed.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!((listed.len(), names.len()), (120, 120));
}

#[tokio::test]
async fn an_endless_list_is_refused() {
    let tools = (0..2001).map(|number| tool(&format!("tool.{number}"), || Answer::text("x"))).collect();
    let gateway = Gateway::start(tools).await;
    let error = client(gateway.url()).tools().await.unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    assert!(chain(&error).contains("more than 2000 tools"), "{}", chain(&error));
}

#[tokio::test]
async fn a_failed_tool_is_a_reply_and_a_rejection_is_an_error() {
    let gateway = Gateway::start(vec![
        tool("fails", || Answer::error("no such task")),
        tool("refuses", || Answer::rejected(-32050, "not\u{7} in this project\n")),
        tool("breaks", || Answer::rejected(-32603, "out of memory")),
    ])
    .await;
    let client = client(gateway.url());

    let reply = client.call(call("fails")).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.is_error), ("no such task", true));

    let error = client.call(call("refuses")).await.unwrap_err();
    assert!(
        matches!(&error, Error::Rejected { code: Some(-32050), message } if message == "not in this project"),
        "{error:?}"
    );
    assert!(!error.is_transient());

    let error = client.call(call("absent")).await.unwrap_err();
    assert!(matches!(error, Error::Rejected { code: Some(-32602), .. }), "{error:?}");

    let error = client.call(call("breaks")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)) && error.is_transient(), "{error:?}");
    assert!(chain(&error).contains("out of memory"));
}

#[tokio::test]
async fn a_hanging_tool_times_out_and_is_cancelled() {
    for legacy in [false, true] {
        let tools = vec![tool("hangs", Answer::hang), tool("works", || Answer::text("done"))];
        let gateway = if legacy { Gateway::start_legacy(tools).await } else { Gateway::start(tools).await };
        let client =
            Client::new(Options { call_timeout: Duration::from_secs(3), ..options(gateway.url()) }).unwrap();
        client.tools().await.unwrap();
        let error = client.call(call("hangs")).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut) && error.is_transient(), "{error:?}");
        eventually("the call is cancelled", async || (gateway.cancelled_calls() == 1).then_some(())).await;
        assert_eq!(client.call(call("works")).await.unwrap().text, "done");
    }
}

#[tokio::test]
async fn a_dropped_call_is_cancelled() {
    let gateway = Gateway::start(vec![tool("hangs", Answer::hang)]).await;
    let client = client(gateway.url());
    tokio::select! {
        result = client.call(call("hangs")) => panic!("{result:?}"),
        () = eventually("the call runs", async || (gateway.calls().len() == 1).then_some(())) => {}
    }
    eventually("the call is cancelled", async || (gateway.cancelled_calls() == 1).then_some(())).await;
}

/// rmcp's default limit is 16 pending requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_calls_run_at_the_same_time() {
    for legacy in [false, true] {
        // None is answered, so all that arrive run at the same time.
        let tools = vec![tool("hangs", Answer::hang)];
        let gateway = if legacy { Gateway::start_legacy(tools).await } else { Gateway::start(tools).await };
        let client = client(gateway.url());
        client.tools().await.unwrap();
        let mut calls = JoinSet::new();
        for _ in 0..64 {
            let client = client.clone();
            calls.spawn(async move { client.call(call("hangs")).await });
        }
        tokio::select! {
            result = calls.join_next() => panic!("{result:?}"),
            () = eventually("all are running", async || (gateway.calls().len() == 64).then_some(())) => {}
        }
    }
}

/// Concurrent first calls share one handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_calls_share_one_session() {
    let gateway = Gateway::start_legacy(vec![tool("works", || Answer::text("done"))]).await;
    let client = client(gateway.url());
    let mut calls = JoinSet::new();
    for _ in 0..16 {
        let client = client.clone();
        calls.spawn(async move { client.call(call("works")).await.map(|reply| reply.text) });
    }
    assert!(calls.join_all().await.into_iter().all(|text| text.unwrap() == "done"));
    let sessions: HashSet<_> = gateway.calls().into_iter().map(|called| called.session).collect();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

#[tokio::test]
async fn a_long_result_is_cut() {
    let gateway = Gateway::start(vec![
        tool("long", || Answer::text("é".repeat(1000))),
        tool("deep", || Answer::structured(json!({"items": vec![7; 1000]}))),
    ])
    .await;
    let client = Client::new(Options { max_result_bytes: 101, ..options(gateway.url()) }).unwrap();
    let reply = client.call(call("long")).await.unwrap();
    assert_eq!((reply.text, reply.truncated), ("é".repeat(50), true));
    let reply = client.call(call("deep")).await.unwrap();
    assert_eq!((reply.text.len(), reply.structured, reply.truncated), (101, None, true));
}

/// Some arguments must also be sent in headers. rmcp knows which ones only after listing the tools.
#[tokio::test]
async fn a_call_rejected_for_missing_headers_is_retried_after_listing() {
    let schema = json!({
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    });
    let gateway =
        Gateway::start(vec![Tool::new("place", "Wants a header", schema, |_| Answer::text("placed"))]).await;
    let reply = client(gateway.url()).call(call_with("place", json!({"region": "eu"}))).await.unwrap();
    assert_eq!(reply.text, "placed");
    assert_eq!(gateway.calls().len(), 1);
}

#[test]
fn an_invalid_url_is_refused_before_connecting() {
    for url in ["", "gateway:8080", "ftp://127.0.0.1/", "unix:/run/x"] {
        let error = Client::new(options(url.to_owned())).unwrap_err();
        assert!(matches!(error, Error::Options(_)) && !error.is_transient(), "{url}: {error:?}");
    }
}
