//! Ordinary calls take a fast path without rmcp. Callers see no difference: the same call, sent so that rmcp
//! handles it, gets the same bytes and the same audit row.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, ScriptedServer, Tool};

const NEWER: &str = "2026-07-28";
const OLDER: [&str; 2] = ["2025-11-25", "2025-03-26"];
/// rmcp treats both as JSON; the fast path leaves the second one to rmcp.
const WAYS: [&str; 2] = ["application/json", "application/json;charset=utf-8"];

struct Call {
    token: String,
    id: Value,
    name: &'static str,
    arguments: Value,
    meta: Value,
}

/// The observable parts of an answer.
#[derive(Debug, PartialEq)]
struct Seen {
    status: StatusCode,
    headers: Vec<(String, String)>,
    body: String,
}

fn call(token: &str, name: &'static str, arguments: Value) -> Call {
    Call { token: token.to_owned(), id: json!(7), name, arguments, meta: json!({}) }
}

async fn send(gateway: &GatewayProcess, call: &Call, version: &str, kind: &str) -> Seen {
    let mut params = json!({ "name": call.name, "arguments": call.arguments, "_meta": call.meta });
    let mut request = gateway
        .http()
        .post(gateway.url())
        .bearer_auth(&call.token)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", kind)
        .header("mcp-protocol-version", version);
    if version == NEWER {
        request = request.header("mcp-method", "tools/call").header("mcp-name", call.name);
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(NEWER);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    let body = json!({ "jsonrpc": "2.0", "id": call.id, "method": "tools/call", "params": params });
    let response = request.body(body.to_string()).send().await.unwrap();
    let headers = response.headers().iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    let mut headers: Vec<_> = headers.collect();
    headers.sort();
    Seen { status: response.status(), headers, body: response.text().await.unwrap() }
}

/// The newest row without the fields that differ each time.
async fn row(gateway: &GatewayProcess) -> Value {
    let mut row = gateway.audit("limit=1").await.remove(0);
    // A call without a trace of its caller has one of its own.
    if row["trace_id"] == row["call_id"].as_str().unwrap().replace('-', "") {
        row["trace_id"] = Value::Null;
    }
    for field in ["seq", "created_at", "call_id", "duration_us", "hash", "time"] {
        row.as_object_mut().unwrap().remove(field);
    }
    row
}

/// Makes a call on both paths, in each version, and returns what the newest version gave.
async fn same(gateway: &GatewayProcess, call: &Call) -> Seen {
    let mut newest = None;
    for version in [OLDER[0], OLDER[1], NEWER] {
        let mut seen = Vec::new();
        for kind in WAYS {
            seen.push((send(gateway, call, version, kind).await, row(gateway).await));
        }
        assert_eq!(seen[0], seen[1], "{} in {version}", call.name);
        newest = seen.pop().map(|(seen, _)| seen);
    }
    newest.unwrap()
}

fn read(seen: &Seen) -> Value {
    serde_json::from_str(&seen.body).unwrap_or_else(|_| panic!("{seen:?}"))
}

#[tokio::test]
async fn fast_path_and_rmcp_answer_alike() {
    let schema = || json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let server = Gateway::start(vec![
        Tool::new("say", "Says it.", schema(), |_| Answer::text("said")),
        Tool::new("fail", "Fails.", schema(), |_| Answer::error("broken")),
        Tool::new("reject", "Says no.", schema(), |_| Answer::rejected(-32602, "no")),
    ])
    .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("echo", &server.url()).await;
    let (manager, analyst) =
        (gateway.manager().await, gateway.bound("project_analyst", "ada", "task-1").await);

    let seen = same(&gateway, &call(&manager, "db.project.list", json!({}))).await;
    assert_eq!(read(&seen)["result"]["resultType"], "complete");
    let seen = same(&gateway, &call(&manager, "echo.say", json!({ "text": "hello" }))).await;
    assert_eq!(read(&seen)["result"]["content"][0]["text"], "said");
    let seen = same(&gateway, &call(&manager, "echo.fail", json!({}))).await;
    assert_eq!(read(&seen)["result"]["isError"], true);
    let seen = same(&gateway, &call(&manager, "echo.reject", json!({}))).await;
    assert_eq!(read(&seen)["result"]["structuredContent"]["code"], "upstream_refused");
    let seen = same(&gateway, &call(&manager, "echo.say", json!({ "text": 5 }))).await;
    assert_eq!(read(&seen)["result"]["structuredContent"]["code"], "invalid_arguments");
    let seen = same(&gateway, &call(&manager, "no.such", json!({}))).await;
    assert_eq!(read(&seen)["error"]["message"], "Unknown tool: no.such");
    let seen = same(&gateway, &call(&analyst, "db.task.create", json!({ "title": "no" }))).await;
    assert!(read(&seen)["error"].is_object(), "{seen:?}");
    let seen = same(&gateway, &call(&analyst, "db.task.get", json!({ "task_id": "task-9" }))).await;
    assert!(read(&seen)["error"].is_object(), "{seen:?}");
    let seen = same(&gateway, &call("cyn_nobody", "echo.say", json!({}))).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn fast_path_and_rmcp_read_requests_alike() {
    let server =
        Gateway::start(vec![Tool::new("say", "", json!({ "type": "object" }), |_| Answer::text("said"))])
            .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("echo", &server.url()).await;
    let manager = gateway.manager().await;
    for id in [json!("seven"), json!("7"), json!(-7), json!(7.0), json!(0), json!(9_007_199_254_740_993_i64)]
    {
        let seen = same(&gateway, &Call { id, ..call(&manager, "echo.say", json!({})) }).await;
        assert_eq!(read(&seen)["result"]["content"][0]["text"], "said");
    }
    for arguments in
        [json!(null), json!({ "deep": [{ "a": 1.5, "b": 1e300, "c": u64::MAX, "d": "\u{1f600}" }] })]
    {
        same(&gateway, &call(&manager, "echo.say", arguments)).await;
    }
    for key in [json!(""), json!("k".repeat(257))] {
        let meta = json!({ "dev.cynode/idempotency-key": key });
        let seen = same(&gateway, &Call { meta, ..call(&manager, "echo.say", json!({})) }).await;
        assert_eq!(read(&seen)["error"]["code"], -32602);
    }
    let meta = json!({ "traceparent": format!("00-{:032x}-00000000000000aa-01", 5), "x": { "y": 1 } });
    same(&gateway, &Call { meta, ..call(&manager, "echo.say", json!({})) }).await;
    assert_eq!(row(&gateway).await["trace_id"], format!("{:032x}", 5));
    // An invalid progress token is ignored.
    let meta = json!({ "progressToken": { "a": 1 } });
    same(&gateway, &Call { meta, ..call(&manager, "echo.say", json!({})) }).await;
    // Repeated on both paths, the call has its effect once.
    let before = server.calls().len();
    let meta = json!({ "dev.cynode/idempotency-key": "once" });
    let once = Call { meta, ..call(&manager, "echo.say", json!({})) };
    send(&gateway, &once, NEWER, WAYS[0]).await;
    same(&gateway, &once).await;
    assert_eq!(server.calls().len(), before + 1);
}

#[tokio::test]
async fn fast_path_and_rmcp_report_progress_alike() {
    let server = ScriptedServer::start(true, |request| {
        if request["method"] == "tools/list" {
            let tool = json!({ "name": "work", "description": "", "inputSchema": { "type": "object" } });
            return json!({ "tools": [tool], "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
        }
        let token = &request["params"]["_meta"]["progressToken"];
        let step = |step: u32| {
            let params = json!({
                "progressToken": token, "progress": step, "total": 2, "message": "\u{202e}so\u{1b} far",
            });
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        };
        json!({ "before": [step(1), step(2)], "content": [], "resultType": "complete" })
    })
    .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("slow", &server.url()).await;
    let manager = gateway.manager().await;
    for token in [json!("mine"), json!(5)] {
        let meta = json!({ "progressToken": token });
        let seen =
            same(&gateway, &Call { meta: meta.clone(), ..call(&manager, "slow.work", json!({})) }).await;
        let events: Vec<Value> = seen
            .body
            .split("\n\n")
            .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok())
            .collect();
        assert_eq!(events.len(), 3, "{seen:?}");
        assert_eq!(events[0]["params"]["progressToken"], token);
        assert_eq!((&events[1]["params"]["progress"], &events[2]["id"]), (&json!(2.0), &json!(7)));
        // Without progress the answer is not a stream.
        let seen = same(&gateway, &Call { meta, ..call(&manager, "db.project.list", json!({})) }).await;
        assert!(read(&seen)["result"].is_object());
    }
    // Without a progress token there is no progress.
    let seen = same(&gateway, &call(&manager, "slow.work", json!({}))).await;
    assert!(read(&seen)["result"].is_object());
}
