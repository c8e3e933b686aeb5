//! The REST interface itself: document, authentication, request validation, metrics.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use testkit::GatewayProcess;

use super::support::TOKENS;

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// Every operation of the OpenAPI document: method, path and description.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, item)| {
            let item = item.as_object().expect("a path item");
            item.iter().map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
        })
        .filter(|(method, ..)| METHODS.contains(method))
        .collect()
}

fn references<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn openapi_document_lists_every_operation_and_each_needs_a_token() {
    let gateway = GatewayProcess::start().await;
    let document = gateway.ask_as("none", "GET", "/api/openapi.json", None).await.body;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("a reference into the document");
        assert!(document.pointer(pointer).is_some(), "{reference} cannot be resolved");
    }
    let operations = operations(&document);
    let mut ids = BTreeSet::new();
    for (method, path, operation) in &operations {
        let what = format!("{method} {path}");
        assert!(
            ids.insert(operation["operationId"].as_str().expect("an id")),
            "{what}: the operation id is not unique"
        );
        assert!(operation["summary"].is_string() && operation["tags"][0].is_string(), "{what}");
        let responses = operation["responses"].as_object().expect("responses");
        assert!(responses.values().all(|response| response["description"].is_string()), "{what}");
        assert!(
            responses.keys().any(|status| status.starts_with('2')) && responses.contains_key("401"),
            "{what}"
        );
        let named = path.matches('{').count();
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        assert_eq!(parameters.iter().filter(|parameter| parameter["in"] == "path").count(), named, "{what}");

        let path = path.replace(['{', '}'], "");
        let answered = gateway.ask_as("cyn_nobody", &method.to_uppercase(), &path, None).await;
        assert_eq!(
            (answered.status, &answered.body["error"]["code"]),
            (401, &json!("unauthenticated")),
            "{what}"
        );
    }
    for expected in
        ["get /api/v1/tools", "post /api/v1/tokens", "get /api/v1/audit/export", "put /api/v1/rules/order"]
    {
        assert!(
            operations.iter().any(|(method, path, _)| format!("{method} {path}") == expected),
            "{expected}"
        );
    }
    assert_eq!(operations.len(), 94, "the number of operations changed: is that intended?");
}

#[tokio::test]
async fn agent_tokens_and_cookies_give_no_access() {
    let gateway = GatewayProcess::start().await;
    let bound = json!({ "label": "x", "agent": "sandbox", "user_id": "u", "task_id": "t" });
    for new in [json!({ "label": "x", "agent": "project_manager" }), bound] {
        let (_, secret) = gateway.issue(new).await;
        for path in ["/api/v1/me", "/api/v1/tools", TOKENS] {
            assert_eq!(gateway.ask_as(&secret, "GET", path, None).await.status, 401, "{path}");
        }
    }
    let (id, secret) = gateway.issue(json!({ "label": "second", "agent": "admin" })).await;
    assert_eq!(gateway.ask_as(&secret, "GET", "/api/v1/me", None).await.body["agent"], "admin");
    gateway.must("DELETE", &format!("{TOKENS}/{id}"), None).await;
    assert_eq!(gateway.ask_as(&secret, "GET", "/api/v1/me", None).await.status, 401);

    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let url = format!("{}/api/v1/me", gateway.admin_url());
    let token = gateway.admin_token();
    let cookies = [format!("token={token}"), format!("session={token}; Authorization=Bearer {token}")];
    for cookie in cookies {
        let response = http.get(&url).header("cookie", cookie).send().await.expect("an answer");
        assert_eq!(response.status(), 401);
        assert!(response.headers().contains_key("www-authenticate"));
    }
    let bearer = format!("Bearer {token}");
    let twice = http.get(&url).header("authorization", &bearer).header("authorization", &bearer);
    assert_eq!(twice.send().await.expect("an answer").status(), 401, "two tokens in one request are refused");
}

#[tokio::test]
async fn requests_with_a_wrong_host_or_format_are_refused() {
    let gateway =
        GatewayProcess::start_with(&[("admin.hosts", "[\"127.0.0.1\", \"gateway.example\"]")]).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let (base, token) = (gateway.admin_url(), gateway.admin_token());
    let get = |host: &'static str, path: &str| {
        http.get(format!("{base}{path}")).bearer_auth(&token).header("host", host).send()
    };
    for (host, path, status) in [
        ("127.0.0.1:1", "/api/v1/me", 200),
        ("gateway.example", "/api/v1/me", 200),
        ("evil.example", "/api/v1/me", 403),
        ("evil.example", "/api/openapi.json", 403),
        ("127.0.0.1.evil.example", "/api/v1/me", 403),
        ("anything", "/livez", 200),
        ("anything", "/readyz", 200),
        ("anything", "/metrics", 200),
    ] {
        let response = get(host, path).await.expect("an answer");
        assert_eq!(response.status(), status, "{host} {path}");
        if path.starts_with("/api") && status == 200 {
            assert_eq!(response.headers()["cache-control"], "no-store");
        }
    }
    let post = |kind: &'static str, body: String| {
        let request = http.post(format!("{base}{TOKENS}")).bearer_auth(&token).header("content-type", kind);
        request.body(body).send()
    };
    let right = json!({ "label": "x", "agent": "project_manager" }).to_string();
    for (kind, body, status, code) in [
        ("text/plain", right.clone(), 415, "not_json"),
        ("application/x-www-form-urlencoded", "label=x".to_owned(), 415, "not_json"),
        ("application/json", format!("{right}{}", " ".repeat(300_000)), 413, "too_large"),
        ("application/json", "{".to_owned(), 400, "unreadable"),
        (
            "application/json",
            json!({ "label": "x", "agent": "project_manager", "admin": true }).to_string(),
            400,
            "unreadable",
        ),
    ] {
        let response = post(kind, body).await.expect("an answer");
        assert_eq!(response.status(), status, "{kind}");
        let text = response.text().await.expect("a body");
        assert!(text.contains(code), "{text}");
    }
    let answered = gateway.ask("GET", "/api/v1/audit?colour=red", None).await;
    assert_eq!(answered.status, 400, "{answered:?}");
    assert_eq!(gateway.ask("GET", "/api/v1/nothing", None).await.body["error"]["code"], "not_found");
    assert_eq!(gateway.ask("PUT", "/api/v1/tools", None).await.body["error"]["code"], "method_not_allowed");
}

#[tokio::test]
async fn calls_are_counted_in_metrics() {
    let gateway = GatewayProcess::start().await;
    gateway.issue(json!({ "label": "x", "agent": "project_manager" })).await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let response = http.get(format!("{}/metrics", gateway.admin_url())).send().await.expect("an answer");
    let text = response.text().await.expect("a body");
    for line in [
        "gateway_calls_total{agent=\"admin\",decision=\"allow\",status=\"success\"} 1",
        "gateway_audit_group_size_count 1",
        "gateway_audit_commit_seconds_count 1",
        "gateway_upstreams{state=\"up\"} 0",
        "gateway_upstreams{state=\"open\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

/// A variable that is not set must not widen what it was to narrow.
#[tokio::test]
async fn empty_narrowing_fields_are_refused() {
    let gateway = GatewayProcess::start().await;
    let skill = |member: &str| {
        let mut skill = json!({ "name": "notes", "description": "d", "content": "c" });
        skill[member] = json!(" ");
        skill
    };
    for (method, path, body, field) in [
        ("POST", "tokens", json!({ "label": "x", "agent": "project_manager", "profile": "" }), "profile"),
        (
            "POST",
            "tokens",
            json!({ "label": "x", "agent": "sandbox", "user_id": "", "task_id": "t" }),
            "user_id",
        ),
        (
            "POST",
            "leases",
            json!({ "agent": "project_manager", "user_id": "a", "project_id": "" }),
            "project_id",
        ),
        ("POST", "leases", json!({ "agent": "project_manager", "user_id": "a", "task_id": " " }), "task_id"),
        (
            "POST",
            "leases",
            json!({ "agent": "project_manager", "user_id": "a", "handoff_id": "" }),
            "handoff_id",
        ),
        ("PUT", "skills", skill("user_id"), "user_id"),
        ("PUT", "skills", skill("project_id"), "project_id"),
    ] {
        let refused = gateway.ask(method, &format!("/api/v1/{path}"), Some(body)).await;
        assert_eq!(refused.status, 422, "{path} {field}: {refused:?}");
        let text = refused.body.to_string();
        assert!(text.contains(field) && text.contains("omit it"), "{path}: {text}");
    }
}
