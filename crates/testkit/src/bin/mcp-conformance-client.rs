//! Drives the worker's MCP client for the MCP conformance suite.
//!
//! The suite starts it with the URL of its server as the last argument, the name of the scenario in
//! `MCP_CONFORMANCE_SCENARIO`, and optionally the calls to make in `MCP_CONFORMANCE_CONTEXT`. The protocol
//! version (`MCP_CONFORMANCE_PROTOCOL_VERSION`) is ignored, since the client must negotiate it.

#![expect(clippy::print_stderr, reason = "the suite keeps what its client says")]

use std::{env, process::ExitCode, time::Duration};

use mcp::{Call, Client, Options, Tool};
use serde_json::{Map, Value, json};

/// Shorter than the suite's own timeout, so that the error says what the client was waiting for.
const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> ExitCode {
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let Some(url) = env::args().next_back() else { return ExitCode::FAILURE };
    match run(&scenario, &context, url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{scenario}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn run(scenario: &str, context: &str, url: String) -> Result<(), mcp::Error> {
    let client = Client::new(Options {
        url,
        token_file: None,
        connect_timeout: TIMEOUT,
        call_timeout: TIMEOUT,
        max_result_bytes: 1024 * 1024,
        fast_path: true,
        profile: None,
    })?;
    let tools = client.tools().await?;
    for (name, arguments) in wanted(scenario, context, &tools) {
        let call = Call { name: &name, arguments, idempotency_key: None, traceparent: None, lease: None };
        let reply = client.call(call).await?;
        eprintln!("{name}: {}", reply.text);
    }
    Ok(())
}

/// Returns the calls of a scenario: those in its context, else each tool once.
fn wanted(scenario: &str, context: &str, tools: &[Tool]) -> Vec<(String, Map<String, Value>)> {
    let context: Value = serde_json::from_str(context).unwrap_or_default();
    if let Some(calls) = context["toolCalls"].as_array() {
        let name = |call: &Value| call["name"].as_str().unwrap_or_default().to_owned();
        let arguments = |call: &Value| call["arguments"].as_object().cloned().unwrap_or_default();
        return calls.iter().map(|call| (name(call), arguments(call))).collect();
    }
    // The server of this scenario can only list tools.
    if scenario == "json-schema-ref-no-deref" {
        return Vec::new();
    }
    // The second tool takes the schema of the first as an argument, to check that nothing of it was lost.
    if scenario == "json-schema-2020-12-preservation"
        && let [first, echo] = tools
    {
        let schema = Value::Object(first.input_schema.clone());
        return vec![(echo.name.clone(), Map::from_iter([("schema".to_owned(), schema)]))];
    }
    tools.iter().map(|tool| (tool.name.clone(), arguments(tool))).collect()
}

/// Returns a value of the right type for each required argument of a tool.
fn arguments(tool: &Tool) -> Map<String, Value> {
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    names
        .map(|name| {
            let value = match tool.input_schema["properties"][name]["type"].as_str() {
                Some("number" | "integer") => json!(3),
                Some("boolean") => json!(true),
                Some("object") => json!({}),
                Some("array") => json!([]),
                _ => json!("something"),
            };
            (name.to_owned(), value)
        })
        .collect()
}
