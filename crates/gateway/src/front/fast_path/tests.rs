use serde_json::{Value, json};

use super::*;

const NEWER: &str = "2026-07-28";

fn body() -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": NEWER,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
        "progressToken": 1,
        "traceparent": "00",
    });
    let params = json!({ "name": "a.tool", "arguments": { "a": 1 }, "_meta": meta });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

fn headers() -> Vec<(&'static str, &'static str)> {
    vec![
        ("host", "127.0.0.1:8790"),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", NEWER),
        ("mcp-method", "tools/call"),
        ("mcp-name", "a.tool"),
        ("cookie", "a=b"),
    ]
}

fn takes_fast_path(headers: &[(&'static str, &'static str)], body: &Value) -> bool {
    let headers =
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    parse(&headers.collect(), body.to_string().as_bytes(), &["127.0.0.1".to_owned()], &Catalogue::default())
        .is_some()
}

fn older() -> (Vec<(&'static str, &'static str)>, Value) {
    let mut headers = headers();
    headers.retain(|(name, _)| !matches!(*name, "mcp-method" | "mcp-name" | "mcp-protocol-version"));
    headers.push(("mcp-protocol-version", "2025-11-25"));
    let mut body = body();
    body["params"]["_meta"] = json!({ "progressToken": "one" });
    (headers, body)
}

#[test]
fn calls_of_common_clients_take_the_fast_path() {
    assert!(takes_fast_path(&headers(), &body()));
    let (mut headers, body) = older();
    assert!(takes_fast_path(&headers, &body));
    headers.push(("mcp-session-id", "unknown"));
    assert!(takes_fast_path(&headers, &body));
}

#[test]
fn a_missing_or_different_header_leaves_the_call_to_rmcp() {
    for (name, other) in [
        ("host", "localhost"),
        ("accept", "application/json"),
        ("content-type", "application/json; charset=utf-8"),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-protocol-version", "2027-01-01"),
        ("mcp-method", "tools/list"),
        ("mcp-name", "b.tool"),
        ("mcp-name", "=?base64?YS50b29s?="),
    ] {
        let mut headers = headers();
        headers.retain(|(found, _)| *found != name);
        assert!(!takes_fast_path(&headers, &body()), "without {name}");
        headers.push((name, other));
        assert!(!takes_fast_path(&headers, &body()), "{name}: {other}");
    }
    for more in [("origin", "http://127.0.0.1"), ("mcp-param-region", "north"), ("mcp-new", "x")] {
        assert!(!takes_fast_path(&[headers(), vec![more]].concat(), &body()), "{more:?}");
    }
    for more in [("mcp-method", "tools/call"), ("mcp-name", "a.tool")] {
        let (headers, body) = older();
        assert!(!takes_fast_path(&[headers, vec![more]].concat(), &body), "{more:?}");
    }
}

#[test]
fn an_unusual_member_of_the_body_leaves_the_call_to_rmcp() {
    for (path, other) in [
        ("/jsonrpc", json!("1.0")),
        ("/id", json!(null)),
        ("/id", json!(1.5)),
        ("/method", json!("tools/list")),
        ("/params", json!([])),
        ("/params/name", json!(1)),
        ("/params/arguments", json!([])),
        ("/params/_meta", json!(null)),
        ("/params/_meta/progressToken", json!({})),
        ("/params/_meta/io.modelcontextprotocol~1protocolVersion", json!("2025-11-25")),
        ("/params/_meta/io.modelcontextprotocol~1clientCapabilities", json!(1)),
    ] {
        let mut body = body();
        *body.pointer_mut(path).expect("it is there") = other;
        assert!(!takes_fast_path(&headers(), &body), "{body}");
    }
    for (path, name) in
        [("", "x"), ("/params", "requestState"), ("/params/_meta", "io.modelcontextprotocol/logLevel")]
    {
        let mut body = body();
        body.pointer_mut(path).expect("it is there")[name] = json!("info");
        assert!(!takes_fast_path(&headers(), &body), "{body}");
    }
    let (headers, mut body) = older();
    body["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({});
    assert!(!takes_fast_path(&headers, &body));
}

#[test]
fn a_host_must_match_exactly() {
    let allowed = ["127.0.0.1".to_owned(), "tools.example:8790".to_owned()];
    for host in ["127.0.0.1", "127.0.0.1:1", "127.0.0.1:65535", "tools.example:8790"] {
        assert!(is_allowed(host, &allowed), "{host}");
    }
    for host in [
        "",
        ":1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:x",
        "127.0.0.1:+1",
        "a@127.0.0.1",
        "127.0.0.1.",
        "127.0.0.1.evil.example",
        "tools.example",
        "tools.example:1",
        "Tools.example:8790",
        "[::1]",
        "[::1]:80",
    ] {
        assert!(!is_allowed(host, &allowed), "{host}");
    }
    assert!(!is_allowed("127.0.0.1", &[]));
}
