//! Requests and results that are too large, too deep, too slow or too frequent.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::json;
use testkit::{Answer, Gateway, GatewayProcess, Tool};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::scripted_upstream::{ScriptedUpstream, quarantine, refresh, text, tool};

/// 15: requests that are too large, too deep or too slow.
#[tokio::test]
async fn attack_15_oversized_requests() {
    let gateway = GatewayProcess::start_with(&[("mcp.read_timeout", "500ms")]).await;
    let manager = gateway.manager().await;
    let large = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "help.list", "arguments": { "x": "y".repeat(5_000_000) } },
    });
    assert_eq!(gateway.post(Some(&manager), large.to_string()).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}{}}}"#,
        r#"{"a":"#.repeat(5_000),
        "}".repeat(5_000)
    );
    assert_eq!(gateway.post(Some(&manager), deep).await.0, StatusCode::BAD_REQUEST);
    // A body that arrives byte by byte.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {manager}\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\n\r\n{{",
        gateway.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = Instant::now();
    let mut answer = String::new();
    drop(tokio::time::timeout(Duration::from_secs(10), stream.read_to_string(&mut answer)).await);
    assert!(answer.starts_with("HTTP/1.1 408") && began.elapsed() < Duration::from_secs(5), "{answer}");
    assert_eq!(gateway.audit("error_type=malformed").await.len(), 3);
    let (_, fine) = gateway.post_call(&manager, "db.project.list", json!({})).await;
    assert!(fine["result"].is_object(), "{fine}");
}

/// 15: upstreams with oversized results, and schemas that keep a validator busy.
#[tokio::test]
async fn attack_15_oversized_results_and_schemas() {
    let huge_schema = json!({ "type": "object", "description": "x".repeat(100_000) });
    // Exponential for a backtracking validator.
    let busy = json!({ "type": "object", "properties": { "a": { "type": "string", "pattern": "^(a+)+$" } } });
    let upstream = ScriptedUpstream::start(json!([
        tool("large"),
        { "name": "huge", "inputSchema": huge_schema },
        { "name": "busy", "inputSchema": busy },
    ]))
    .await;
    let server =
        Gateway::start(vec![Tool::new("hang", "", json!({ "type": "object" }), |_| Answer::hang())]).await;
    let gateway = GatewayProcess::start().await;
    gateway.install("behind", &upstream.server.url()).await;
    gateway.install("slow", &server.url()).await;
    let manager = gateway.manager().await;
    upstream.answer(text(&"x".repeat(2_000_000)));
    let (_, answer) = gateway.post_call(&manager, "behind.large", json!({})).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "too_large");
    let began = Instant::now();
    upstream.answer(text("done"));
    let (_, answer) =
        gateway.post_call(&manager, "behind.busy", json!({ "a": format!("{}!", "a".repeat(60)) })).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "invalid_arguments", "{answer}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let (_, answer) = gateway.post_call(&manager, "slow.hang", json!({})).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "upstream_timeout", "{answer}");
    assert!(!gateway.tools(&manager).await.contains(&"behind.huge".to_owned()));
    assert!(quarantine(&gateway).await.iter().any(|line| line.starts_with("behind.huge: it is larger")));
}

/// 16: arguments that try to escape their context.
#[tokio::test]
async fn attack_16_injection_through_arguments() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["path"],
        "properties": { "path": { "type": "string", "pattern": "^[a-z/]+$" } },
    });
    let server = Gateway::start(vec![Tool::new("read", "", schema, |_| Answer::text("read"))]).await;
    let gateway = GatewayProcess::start().await;
    gateway.install("files", &server.url()).await;
    let manager = gateway.manager().await;
    for arguments in [
        json!({}),
        json!({ "path": "../../etc/passwd" }),
        json!({ "path": 7 }),
        json!({ "path": "a", "user": "root" }),
        json!({ "path": "a; rm -rf /" }),
    ] {
        let (_, answer) = gateway.post_call(&manager, "files.read", arguments.clone()).await;
        assert_eq!(
            answer["result"]["structuredContent"]["code"], "invalid_arguments",
            "{arguments}: {answer}"
        );
    }
    assert!(server.calls().is_empty());
    // SQL in an argument is text.
    let id = "x' OR '1'='1";
    let (_, answer) = gateway.post_call(&manager, "db.project.get", json!({ "project_id": id })).await;
    assert!(
        answer["error"].is_object() || answer["result"]["structuredContent"]["code"] == "not_found",
        "{answer}"
    );
    // An access rule that matches arguments.
    let rule = json!({
        "effect": "deny", "tool": "files.*", "argument": "/path", "matches": "secret*", "note": "not these",
    });
    gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    let (_, denied) = gateway.post_call(&manager, "files.read", json!({ "path": "secret/plans" })).await;
    assert_eq!(denied["error"]["data"]["reason"], "rule", "{denied}");
    let (_, fine) = gateway.post_call(&manager, "files.read", json!({ "path": "public/plans" })).await;
    assert_eq!(fine["result"]["content"][0]["text"], "read", "{fine}");
    // Ids of another tenant.
    let sandbox = gateway.bound("sandbox", "ada", "task-1").await;
    for id in [json!("task-2"), json!(["task-1"]), json!("task-1\u{0}"), json!(1)] {
        let (_, answer) =
            gateway.post_call(&sandbox, "files.read", json!({ "path": "a", "task_id": id })).await;
        assert_eq!(answer["error"]["data"]["reason"], "mismatched_id", "{id}: {answer}");
    }
}

/// 17: fetching internal addresses. (All notations of an address are tested in `crates/policy/src/urls.rs`.)
#[tokio::test]
async fn attack_17_internal_addresses() {
    let server =
        Gateway::start(vec![Tool::new("fetch", "", json!({ "type": "object" }), |_| Answer::text("page"))])
            .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("web", &server.url()).await;
    let manager = gateway.manager().await;
    for url in [
        "http://169.254.169.254/",
        "http://2130706433/",
        "http://[::ffff:127.0.0.1]/",
        "file:///etc/passwd",
        "http://a:b@example.com/",
    ] {
        let (_, answer) = gateway.post_call(&manager, "web.fetch", json!({ "url": url })).await;
        assert_eq!(answer["error"]["data"]["reason"], "forbidden_address", "{url}: {answer}");
    }
    assert!(server.calls().is_empty());
    let (_, answer) =
        gateway.post_call(&manager, "web.fetch", json!({ "url": "https://example.com/" })).await;
    assert_eq!(answer["result"]["content"][0]["text"], "page");
}

/// 23: callers cannot inject text into the audit. (Changing rows is tested in `audit_storm.rs`.)
#[tokio::test]
async fn attack_23_callers_cannot_inject_into_the_audit() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let name = format!("x\n{{\"decision\":\"allow\"}}\u{1b}[2J{}", "y".repeat(500));
    let (_, answer) = gateway.post_call(&manager, &name, json!({ "password": "hunter2" })).await;
    assert!(answer["error"].is_object());
    let rows = gateway.audit("decision=deny").await;
    let tool = rows[0]["tool"].as_str().unwrap();
    assert!(tool.len() <= 128 && tool.chars().all(|letter| letter.is_ascii_graphic()), "{tool:?}");
    assert!(!serde_json::to_string(&rows).unwrap().contains("hunter2"));
    let verified = gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!(verified["ok"], true, "{verified}");
    assert!(!gateway.log().contains("hunter2") && !gateway.log().contains('\u{1b}'));
}

/// 25: one caller uses all capacity.
#[tokio::test]
async fn attack_25_one_caller_uses_all_capacity() {
    let gateway = GatewayProcess::start_with(&[("calls.per_second", "20")]).await;
    let (greedy, modest) = (gateway.manager().await, gateway.manager().await);
    let mut refused = 0;
    for _ in 0..60 {
        let (status, answer) = gateway.post_call(&greedy, "db.project.list", json!({})).await;
        refused += usize::from(status == StatusCode::TOO_MANY_REQUESTS);
        assert!(
            status == StatusCode::OK || answer["error"]["message"].as_str().unwrap().contains("try again"),
            "{answer}"
        );
    }
    assert!(refused > 0, "60 calls at once exceed 20 a second");
    let (status, _) = gateway.post_call(&modest, "db.project.list", json!({})).await;
    assert_eq!(status, StatusCode::OK, "other callers are not limited");
    assert_eq!(
        gateway.audit("error_type=too_fast&limit=1000").await.len(),
        refused,
        "each refused call is recorded"
    );
    // An orchestrator has one token for all users.
    let orchestrator = gateway.unbound("orchestrator").await;
    for _ in 0..60 {
        let (status, answer) = gateway.post_call(&orchestrator, "help.list", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    // `tools/list` makes no request to upstreams.
    let upstream = ScriptedUpstream::start(json!([tool("one")])).await;
    gateway.install("behind", &upstream.server.url()).await;
    refresh(&gateway, "behind").await;
    let lists = || upstream.server.seen().iter().filter(|message| message["method"] == "tools/list").count();
    let before = lists();
    for _ in 0..10 {
        gateway.tools(&modest).await;
    }
    assert_eq!(lists(), before);
}
