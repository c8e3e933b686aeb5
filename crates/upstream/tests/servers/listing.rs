//! Raw tool lists and change notifications.

use serde_json::{Value, json};
use testkit::{Gateway, ScriptedServer};
use upstream::{Error, State};

use crate::support::{call, gateway, http, legacy_gateway, stdio, tool, upstream};

/// Returns one of two pages, with fields that rmcp does not know and a tool that it cannot parse.
fn pages(request: &Value) -> Value {
    match request["params"]["cursor"].as_str() {
        None => json!({
            "tools": [
                {"name": "first", "inputSchema": {"type": "object", "x-deep": [1, 2.50, 1e300, {"ü": null}]},
                 "description": "", "x-vendor": {"risk": "high"}, "_meta": {"a": 1}},
                {"name": "odd", "inputSchema": 7},
            ],
            "nextCursor": "2", "_meta": {"dev.cynode/raw-tools": "forged"}, "ttlMs": 1000,
            "cacheScope": "private",
            "resultType": "complete",
        }),
        Some(_) => json!({
            "tools": [{"name": "last", "inputSchema": {"type": "object"}, "unknown": true}],
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        }),
    }
}

#[tokio::test]
async fn tools_are_listed_with_all_their_fields() {
    for streamed in [false, true] {
        let server = ScriptedServer::start(streamed, pages).await;
        let tools = upstream(http(server.url())).tools().await.unwrap();
        let first = pages(&json!({}));
        let last = pages(&json!({"params": {"cursor": "2"}}));
        let written: Vec<Value> =
            [&first, &last].iter().flat_map(|page| page["tools"].as_array().unwrap().clone()).collect();
        assert_eq!(tools.into_iter().map(Value::Object).collect::<Vec<_>>(), written, "streamed: {streamed}");
    }
}

#[tokio::test]
async fn tools_of_a_process_are_listed_with_all_their_fields() {
    let tools = upstream(stdio(&["only-initialize"])).tools().await.unwrap();
    assert_eq!(
        tools.into_iter().map(Value::Object).collect::<Vec<_>>(),
        [
            json!({"name": "echo", "inputSchema": {"type": "object"}, "x-unknown": {"kept": [1, 2.5, null]}}),
            json!({"name": "odd", "inputSchema": "not a schema"}),
        ]
    );
}

#[tokio::test]
async fn tools_are_listed_in_either_era() {
    for gateway in [gateway().await, legacy_gateway().await] {
        let tools = upstream(http(gateway.url())).tools().await.unwrap();
        assert_eq!((tools.len(), &tools[0]["name"]), (5, &json!("echo")));
    }
    for mode in ["normal", "legacy"] {
        assert_eq!(upstream(stdio(&[mode])).tools().await.unwrap().len(), 9);
    }
}

#[tokio::test]
async fn an_endless_list_is_refused() {
    let many =
        (0..2001).map(|number| tool(&format!("tool_{number}"), || testkit::Answer::text(""))).collect();
    let gateway = Gateway::start(many).await;
    let error = upstream(http(gateway.url())).tools().await.unwrap_err();
    assert!(matches!(&error, Error::Protocol(words) if words.contains("2000")), "{error:?}");

    let cyclic = ScriptedServer::start(false, |_| json!({"tools": [], "nextCursor": "again"})).await;
    let error = upstream(http(cyclic.url())).tools().await.unwrap_err();
    assert!(matches!(&error, Error::Protocol(words) if words.contains("repeats a cursor")), "{error:?}");

    // Twenty pages of a megabyte.
    let heavy = ScriptedServer::start(false, |request| {
        let page = request["params"]["cursor"].as_str().map_or(0, |page| page.parse::<u32>().unwrap());
        let tool =
            json!({"name": "heavy", "description": "x".repeat(1 << 20), "inputSchema": {"type": "object"}});
        json!({"tools": [tool], "nextCursor": (page + 1).to_string()})
    })
    .await;
    let error = upstream(http(heavy.url())).tools().await.unwrap_err();
    assert!(matches!(&error, Error::Protocol(words) if words.contains("bytes")), "{error:?}");
}

#[tokio::test]
async fn a_change_of_tools_is_announced_and_listed() {
    let upstream = upstream(stdio(&["changing"]));
    let mut changes = upstream.tool_changes();
    let before = upstream.tools().await.unwrap();
    assert!(!changes.has_changed().unwrap());
    call(&upstream, "echo").await.unwrap();
    changes.changed().await.unwrap();
    let after = upstream.tools().await.unwrap();
    assert_ne!(before[0]["description"], after[0]["description"]);
}

#[tokio::test]
async fn a_server_of_the_newer_era_is_asked_for_change_notifications() {
    let server = ScriptedServer::start(true, |request| {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": request["id"]});
        let wanted = &request["params"]["notifications"];
        let notification = |method: &str, params: Value| {
            json!({
                "jsonrpc": "2.0", "method": method, "params": params,
            })
        };
        match request["method"].as_str() {
            Some("subscriptions/listen") => json!({
                "before": [
                    notification("notifications/subscriptions/acknowledged", json!({
                        "notifications": wanted, "_meta": meta,
                    })),
                    notification("notifications/tools/list_changed", json!({"_meta": meta})),
                ],
                "resultType": "complete", "_meta": meta,
            }),
            _ => json!({"content": []}),
        }
    })
    .await;
    let upstream = upstream(http(server.url()));
    let mut changes = upstream.tool_changes();
    call(&upstream, "anything").await.unwrap();
    changes.changed().await.unwrap();
    let listens =
        server.seen().into_iter().find(|message| message["method"] == "subscriptions/listen").unwrap();
    assert_eq!(listens["params"]["notifications"], json!({"toolsListChanged": true}));
    // The subscription ends with the upstream.
    upstream.close().await;
}

#[tokio::test]
async fn a_reconnect_counts_as_a_change_of_tools() {
    let mut gateway = gateway().await;
    let upstream = upstream(http(gateway.url()));
    let mut changes = upstream.tool_changes();
    call(&upstream, "echo").await.unwrap();
    assert!(!changes.has_changed().unwrap(), "the first connection is no change");
    gateway.kill();
    call(&upstream, "echo").await.unwrap_err();
    gateway.start_again();
    call(&upstream, "echo").await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(upstream.health().state, State::Up);
}
