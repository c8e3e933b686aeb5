//! Bad input: the right 4xx, and nothing is handed off.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ChatClient, Model, Script, chat_body};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::stage::Stage;

#[tokio::test]
async fn bad_requests_get_the_right_4xx_and_are_not_handed_off() {
    let stage = Stage::start([Script::say("hello")]).await;
    let client = stage.client();
    let user = |content: Value| {
        json!({ "model": "cynodeai.pm", "messages": [{ "role": "user", "content": content }] })
            .to_string()
            .into_bytes()
    };
    let many: Vec<Value> = vec![json!({ "role": "user", "content": "x" }); 10_000];
    let many = json!({ "model": "cynodeai.pm", "messages": many }).to_string().into_bytes();
    let mut deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000)).into_bytes();
    deep.splice(0..0, b"{\"model\":\"cynodeai.pm\",\"messages\":".iter().copied());
    deep.push(b'}');
    let mut invalid = user(json!("?"));
    let at = invalid.iter().position(|byte| *byte == b'?').unwrap();
    invalid[at] = 0xff;
    for (what, body, status, code) in [
        ("nothing", Vec::new(), 400, "invalid_json"),
        ("no JSON", b"hello".to_vec(), 400, "invalid_json"),
        ("an array", b"[]".to_vec(), 400, "invalid_json"),
        ("invalid UTF-8", invalid, 400, "invalid_json"),
        ("deep", deep, 400, "invalid_json"),
        ("too many messages", many, 400, "array_too_long"),
        ("no model", b"{\"messages\":[]}".to_vec(), 400, "invalid_value"),
        ("NUL", user(json!("a\u{0}b")), 400, "invalid_value"),
        ("too much text", user(json!("x".repeat(600_000))), 400, "context_length_exceeded"),
        ("too much JSON", user(json!("\u{1}".repeat(120_000))), 400, "context_length_exceeded"),
        ("too large", user(json!("x".repeat(3 << 20))), 413, "request_too_large"),
        ("an image", user(json!([{ "type": "image_url" }])), 400, "unsupported_value"),
    ] {
        let refused = client.send_bytes("POST", "/chat/completions", Some(body)).await.unwrap();
        assert_eq!((refused.status, refused.code()), (status, code), "{what}: {refused:?}");
    }
    let input = |input: Value| json!({ "model": "cynodeai.pm", "input": input }).to_string().into_bytes();
    let mut deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000)).into_bytes();
    deep.splice(0..0, b"{\"model\":\"cynodeai.pm\",\"input\":".iter().copied());
    deep.push(b'}');
    let call = json!({ "type": "function_call_output", "call_id": "1", "output": "x" });
    let many = vec![json!({ "role": "user", "content": "x" }); 10_000];
    for (what, body, status, code) in [
        ("nothing", Vec::new(), 400, "invalid_json"),
        ("deep", deep, 400, "invalid_json"),
        ("no input", b"{\"model\":\"cynodeai.pm\"}".to_vec(), 400, "invalid_value"),
        ("too many items", input(json!(many)), 400, "array_too_long"),
        ("a tool without a call", input(json!([call])), 400, "unsupported_value"),
        ("NUL", input(json!("a\u{0}b")), 400, "invalid_value"),
        ("too much text", input(json!("x".repeat(600_000))), 400, "context_length_exceeded"),
        ("too much JSON", input(json!("\u{1}".repeat(120_000))), 400, "context_length_exceeded"),
        ("too large", input(json!("x".repeat(3 << 20))), 413, "request_too_large"),
    ] {
        let refused = client.send_bytes("POST", "/responses", Some(body)).await.unwrap();
        assert_eq!((refused.status, refused.code()), (status, code), "{what}: {refused:?}");
    }
    for (method, path, status, code) in [
        ("GET", "/responses", 405, "method_not_allowed"),
        ("GET", "/responses/x", 404, "response_not_found"),
        ("GET", "/responses/resp_1?stream=true", 400, "unsupported_value"),
        ("GET", "/responses/resp_1/input_items?limit=0", 400, "invalid_value"),
        ("GET", "/responses/resp_1/input_items?order=odd", 400, "invalid_value"),
        ("POST", "/responses/x/cancel", 404, "response_not_found"),
    ] {
        let refused = client.send(method, path, None).await;
        assert_eq!((refused.status, refused.code()), (status, code), "{method} {path}");
    }
    for (header, value) in [
        ("x-cynode-thread", "x".repeat(300)),
        ("idempotency-key", "x".repeat(300)),
        ("x-cynode-project", "not a project".to_owned()),
    ] {
        let refused = stage.client().with(header, &value).ask("hello").await;
        assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!(header)));
    }
    for field in ["thread_id", "project_id"] {
        let mut body = chat_body(&[("user", "hello")]);
        body["metadata"] = json!({ field: 7 });
        let refused = client.send("POST", "/chat/completions", Some(body)).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"));
        assert_eq!(refused.body["error"]["param"], format!("metadata.{field}"));
    }
    let named = stage.client().with("x-cynode-user", "bob").ask("hello").await;
    assert_eq!((named.status, named.code()), (403, "user_not_allowed"));
    assert_eq!(stage.handoffs().await, 0);
    assert_eq!(client.send("GET", "/threads", None).await.body["data"], json!([]));
}

/// Sends a request by hand, as far as `body` goes, and reads the answer.
async fn send_slowly(stage: &Stage, body: &str) -> String {
    let mut stream = TcpStream::connect(stage.orchestrator.address()).await.unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Length: 1000\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{body}",
        stage.orchestrator.address(),
        stage.key
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn slow_bodies_are_refused_in_time() {
    let model = Model::start([Script::say("hello")]).await;
    let stage = Stage::start_with(model, |builder| builder.set("api.read_timeout", "200ms")).await;
    let answer =
        tokio::time::timeout(Duration::from_secs(5), send_slowly(&stage, "{\"model\":")).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
    assert_eq!(stage.handoffs().await, 0);
}

#[tokio::test]
async fn clients_without_a_key_are_slowed_down_and_those_with_one_are_not() {
    let model = Model::start([Script::say("hello")]).await;
    let stage = Stage::start_with(model, |builder| builder.set("unauthenticated.per_second", "1")).await;
    let valid = stage.client();
    assert_eq!(valid.send("GET", "/models", None).await.status, 200);
    let unknown = stage.orchestrator.client("cyn_unknown");
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(unknown.send("GET", "/models", None).await.status);
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(valid.send("GET", "/models", None).await.status, 200);
}

/// Their keys are checked again and again, by a client that shares its address with one that has none.
#[tokio::test]
async fn clients_with_a_valid_key_are_not_limited_by_their_address() {
    let model = Model::start([Script::say("hello")]).await;
    let stage = Stage::start_with(model, |builder| {
        builder.set("unauthenticated.per_second", "1").set("chat.key_cache", "1ms")
    })
    .await;
    let mut clients = vec![stage.client()];
    for user in 0..11 {
        let key = stage.gateway.api_key(&format!("user-{user}")).await.1;
        clients.push(stage.orchestrator.client(&key));
    }
    let is_admitted = async |client: &ChatClient| client.send("GET", "/models", None).await.status == 200;
    for client in &clients {
        assert!(is_admitted(client).await, "a new key is not counted once it is found valid");
    }
    let unknown = stage.orchestrator.client("cyn_unknown");
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(unknown.send("GET", "/models", None).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    for client in &clients {
        assert!(is_admitted(client).await, "a key that was valid is not locked out");
    }
}

/// A page of another origin may not call, unless it is listed.
#[tokio::test]
async fn only_listed_origins_may_call() {
    let model = Model::start([Script::say("hello")]).await;
    let stage =
        Stage::start_with(model, |builder| builder.set("api.origins", "[\"https://chat.example\"]")).await;
    let preflight = |origin: &str| {
        let client = stage.orchestrator.client("").with("origin", origin);
        let client = client.with("access-control-request-method", "POST");
        async move { client.send("OPTIONS", "/chat/completions", None).await }
    };
    let permitted = preflight("https://chat.example").await;
    assert_eq!(permitted.status, 204);
    assert_eq!(permitted.header("access-control-allow-origin"), Some("https://chat.example"));
    let refused = preflight("https://evil.example").await;
    assert!(refused.status >= 400 && refused.header("access-control-allow-origin").is_none());
    let called = stage.client().with("origin", "https://chat.example").send("GET", "/models", None).await;
    assert_eq!(called.header("access-control-allow-origin"), Some("https://chat.example"));
    assert_eq!(chat_body(&[]).get("stream"), None);
}
