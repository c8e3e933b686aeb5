//! Gateways that share a database.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{Gateway, GatewayProcess};

/// Starts `count` gateways on one database at the same time. With few connections, since each takes a debug
/// build a tenth of a second, and with a patience that no loaded machine exceeds.
pub(crate) async fn gateways(count: usize, url: &str, settings: &[(&str, &str)]) -> Vec<GatewayProcess> {
    let common = [("store.url", url), ("store.max_connections", "4"), ("store.patience", "30s")];
    let settings: Vec<_> = common.into_iter().chain(settings.iter().copied()).collect();
    join_all((0..count).map(|_| GatewayProcess::start_with(&settings))).await
}

/// Request body of a call, with or without a key.
pub(crate) fn call(tool: &str, arguments: &Value, key: Option<&str>) -> String {
    let mut params = json!({ "name": tool, "arguments": arguments });
    if let Some(key) = key {
        params["_meta"] = json!({ "dev.cynode/idempotency-key": key });
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

/// Text of the answer, or the whole answer if it is an error.
pub(crate) fn text(answer: &Value) -> Result<String, String> {
    match answer["result"]["content"][0]["text"].as_str() {
        Some(text) if answer["result"]["isError"] != true => Ok(text.to_owned()),
        _ => Err(answer.to_string()),
    }
}

/// Counts the audit rows of a tool by `decision/status/error_type`.
pub(crate) async fn outcomes(gateway: &GatewayProcess, tool: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for row in gateway.audit(&format!("tool={tool}&limit=1000")).await {
        let word = |member: &str| row[member].as_str().unwrap_or("-").to_owned();
        let outcome = format!("{}/{}/{}", word("decision"), word("status"), word("error_type"));
        *found.entry(outcome).or_default() += 1;
    }
    found
}

/// Asserts that row numbers are consecutive and that no call has two rows.
pub(crate) async fn assert_audit_is_whole(gateway: &GatewayProcess) {
    let verified = gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!(verified["ok"], true, "{verified}");
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    let mut last = 0;
    loop {
        let more = gateway.audit(&format!("after={last}&limit=1000")).await;
        let Some(row) = more.last() else { break };
        last = row["seq"].as_i64().expect("a number");
        for row in &more {
            *rows.entry(row["call_id"].as_str().expect("an id").to_owned()).or_default() += 1;
        }
    }
    rows.retain(|_, count| *count > 1);
    assert!(rows.is_empty(), "calls with more than one row: {rows:?}");
}

/// How often each text reached the upstream.
pub(crate) fn effects(server: &Gateway) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for called in server.calls() {
        let text = called.arguments.get("text").and_then(Value::as_str).unwrap_or_default();
        *found.entry(text.to_owned()).or_default() += 1;
    }
    found
}

/// Errors and warnings in the logs, for messages of failing tests.
pub(crate) fn complaints(gateways: &[GatewayProcess]) -> String {
    let logs: Vec<String> = gateways.iter().map(GatewayProcess::log).collect();
    let lines = logs.iter().flat_map(|log| log.lines());
    let bad = lines
        .filter(|line| !line.contains("rmcp::"))
        .filter(|line| line.contains("\"ERROR\"") || line.contains("\"WARN\""));
    bad.take(20).collect::<Vec<_>>().join("\n")
}
