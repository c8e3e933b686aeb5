//! Malformed and contradictory MCP requests.

use reqwest::{Method, StatusCode, header::HeaderMap};
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Tool};

fn modern(method: &str, mut params: Value) -> String {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

async fn send(
    gateway: &GatewayProcess,
    token: &str,
    headers: &[(&str, &str)],
    body: String,
) -> (StatusCode, Value, HeaderMap) {
    let mut request = gateway
        .http()
        .post(gateway.url())
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.body(body).send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)), headers)
}

/// 5: headers contradict the body.
#[tokio::test]
async fn attack_05_headers_contradict_the_body() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let body = || modern("tools/call", json!({ "name": "db.project.list", "arguments": {} }));
    let honest = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "db.project.list"),
    ];
    let (status, answer, _) = send(&gateway, &manager, &honest, body()).await;
    assert!(status == StatusCode::OK && answer["result"]["isError"] != json!(true), "{answer}");
    let base64 = format!("=?base64?{}?=", "aGVscC5saXN0");
    for lie in ["help.list", "", "db.project.list ", &base64] {
        let headers = [honest[0], honest[1], ("mcp-name", lie)];
        let (status, answer, _) = send(&gateway, &manager, &headers, body()).await;
        if lie.trim() == "db.project.list" {
            continue;
        }
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!(-32020)),
            "{lie}: {answer}"
        );
    }
    let twice = [honest[0], honest[1], honest[2], ("mcp-name", "help.list")];
    assert_eq!(send(&gateway, &manager, &twice, body()).await.0, StatusCode::BAD_REQUEST);
    let tokens = [honest[0], honest[1], honest[2], ("authorization", "Bearer cyn_other")];
    assert_eq!(send(&gateway, &manager, &tokens, body()).await.0, StatusCode::BAD_REQUEST);
    // In the older era these headers are not validated, so they must be ignored.
    let older = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "no.such", "arguments": {} },
    });
    let headers =
        [("mcp-protocol-version", "2025-11-25"), ("mcp-method", "tools/list"), ("mcp-name", "help.list")];
    let (_, answer, _) = send(&gateway, &manager, &headers, older.to_string()).await;
    assert_eq!(answer["error"]["message"], "Unknown tool: no.such");
    // Every refused call has its audit row.
    assert_eq!(gateway.audit("tool=db.project.list&decision=deny&error_type=protocol").await.len(), 3);
}

/// 6: bodies that two parsers could read differently.
#[tokio::test]
async fn attack_06_ambiguous_bodies() {
    let server =
        Gateway::start(vec![Tool::new("say", "", json!({ "type": "object" }), |_| Answer::text("said"))])
            .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("echo", &server.url()).await;
    let manager = gateway.manager().await;
    for body in [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"echo.say"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"help.list","name":"echo.say","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo.say","arguments":{"a":1,"a":2}}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo.say","arguments":{}}}]"#,
        "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"echo.say\"}}",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo.say"}} {"x":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo.say","#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo.say\u0000"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"both"}}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"tools/call","params":{"name":"echo.say"}}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"echo.say"}}"#,
        "",
    ] {
        let (status, answer, _) = send(&gateway, &manager, &[], body.to_owned()).await;
        let refused = status.is_client_error() || answer["error"].is_object();
        assert!(refused, "{body}: {status} {answer}");
    }
    assert!(server.calls().is_empty(), "no call was made: {:?}", server.calls());
}

/// 9: the gateway does not carry request state of an upstream, and trusts none that a caller sends.
#[tokio::test]
async fn attack_09_no_foreign_request_state() {
    let upstream =
        super::scripted_upstream::ScriptedUpstream::start(json!([super::scripted_upstream::tool("ask")]))
            .await;
    upstream.answer(json!({
        "resultType": "input_required", "requestState": "c2VjcmV0",
        "inputRequests": { "a": { "method": "elicitation/create",
            "params": { "message": "password?", "requestedSchema": { "type": "object",
            "properties": { "p": { "type": "string" } } } } } },
    }));
    let gateway = GatewayProcess::start().await;
    gateway.install("asks", &upstream.server.url()).await;
    let manager = gateway.manager().await;
    let (_, answer) = gateway.post_call(&manager, "asks.ask", json!({})).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "asks_for_input", "{answer}");
    assert!(!answer.to_string().contains("c2VjcmV0") && !answer.to_string().contains("password"));
    let params = json!({
        "name": "asks.ask", "arguments": {}, "requestState": "forged", "inputResponses": { "a": {} },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    gateway.post(Some(&manager), body.to_string()).await;
    assert!(!serde_json::to_string(&upstream.calls()).unwrap().contains("forged"));
}

/// 19: requests from a browser of another site (CSRF, DNS rebinding).
#[tokio::test]
async fn attack_19_cross_site_requests() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let list = || json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }).to_string();
    for (name, value) in [
        ("host", "evil.example"),
        ("host", "127.0.0.1.evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
    ] {
        let (status, _, headers) = send(&gateway, &manager, &[(name, value)], list()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{name}: {value}");
        assert!(!headers.contains_key("access-control-allow-origin"));
    }
    // A page can send such content types without a CORS preflight, but they are not JSON.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let request = gateway.http().post(gateway.url()).bearer_auth(&manager).header("content-type", kind);
        let request = request.header("accept", "application/json, text/event-stream").body(list());
        assert_eq!(request.send().await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    let asked = gateway
        .http()
        .request(Method::OPTIONS, gateway.url())
        .header("origin", "http://evil.example")
        .send()
        .await
        .unwrap();
    assert!(asked.status().is_client_error() && !asked.headers().contains_key("access-control-allow-origin"));
}

/// 21: every call is decided, and a denied tool reads like one that does not exist.
#[tokio::test]
async fn attack_21_decision_cannot_be_bypassed() {
    let server =
        Gateway::start(vec![Tool::new("say", "", json!({ "type": "object" }), |_| Answer::text("said"))])
            .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("echo", &server.url()).await;
    let (manager, analyst) =
        (gateway.manager().await, gateway.bound("project_analyst", "ada", "task-1").await);
    for method in [
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "resources/subscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "sampling/createMessage",
        "roots/list",
        "elicitation/create",
        "tools/Call",
        "tools/call ",
        "no/such",
    ] {
        let params = json!({
            "name": "echo.say", "uri": "test://x", "arguments": {}, "level": "debug", "taskId": "1",
            "ref": { "type": "ref/prompt", "name": "x" }, "argument": { "name": "a", "value": "b" },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (_, answer, _) = send(&gateway, &manager, &[], body.to_string()).await;
        assert!(answer["error"].is_object(), "{method}: {answer}");
    }
    // As a notification the call has neither answer nor effect.
    let silent = json!({
        "jsonrpc": "2.0", "method": "tools/call", "params": { "name": "echo.say", "arguments": {} },
    });
    send(&gateway, &manager, &[], silent.to_string()).await;
    assert!(server.calls().is_empty());
    // A tool that exists but not for an analyst, and one that does not exist.
    let (_, denied) = gateway.post_call(&analyst, "echo.say", json!({})).await;
    let (_, unknown) = gateway.post_call(&analyst, "echo.sax", json!({})).await;
    let told =
        |answer: &Value| answer["error"].to_string().replace("echo.say", "NAME").replace("echo.sax", "NAME");
    assert_eq!(told(&denied), told(&unknown));
    assert!(!gateway.tools(&analyst).await.contains(&"echo.say".to_owned()));
    assert!(server.calls().is_empty());
}

/// 24: a call whose answer was lost is repeated. (In full in `store.rs` and `keys.rs`.)
#[tokio::test]
async fn attack_24_repeated_call_has_one_effect() {
    let server =
        Gateway::start(vec![Tool::new("pay", "", json!({ "type": "object" }), |_| Answer::text("paid"))])
            .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("bank", &server.url()).await;
    let manager = gateway.manager().await;
    let body = || {
        let meta = json!({ "dev.cynode/idempotency-key": "run-1/step-4" });
        let params = json!({ "name": "bank.pay", "arguments": { "amount": 5 }, "_meta": meta });
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    };
    let (_, first) = gateway.post(Some(&manager), body()).await;
    let (_, second) = gateway.post(Some(&manager), body()).await;
    assert_eq!(first, second);
    assert_eq!(server.calls().len(), 1);
    // The same key of another caller is another key.
    let sandbox = gateway.bound("sandbox", "ada", "task-1").await;
    gateway.post(Some(&sandbox), body()).await;
    assert_eq!(server.calls().len(), 2);
}
