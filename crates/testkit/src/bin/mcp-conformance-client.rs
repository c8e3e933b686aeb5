//! The client that the MCP conformance suite examines: the worker's own, driven as a scenario wants it.
//!
//! The suite starts it with the address of its server as the last argument, the name of the scenario in
//! `MCP_CONFORMANCE_SCENARIO`, and in `MCP_CONFORMANCE_CONTEXT` what the scenario wants called, if that matters. The
//! version of the protocol (`MCP_CONFORMANCE_PROTOCOL_VERSION`) is not looked at: finding out is the client's task.

#![expect(clippy::print_stderr, reason = "the suite keeps what its client says")]

use std::{env, process::ExitCode, time::Duration};

use mcp::{Call, Client, Options, Tool};
use serde_json::{Map, Value, json};

/// Shorter than the patience of the suite, which then cannot say what was waited for.
const PATIENCE: Duration = Duration::from_secs(20);

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
        connect_timeout: PATIENCE,
        call_timeout: PATIENCE,
        max_result_bytes: 1024 * 1024,
    })?;
    let tools = client.tools().await?;
    for (name, arguments) in wanted(scenario, context, &tools) {
        let call = Call { name: &name, arguments, idempotency_key: None, traceparent: None };
        let reply = client.call(call).await?;
        eprintln!("{name}: {}", reply.text);
    }
    Ok(())
}

/// The calls of a scenario: those that its context names, else each tool once.
fn wanted(scenario: &str, context: &str, tools: &[Tool]) -> Vec<(String, Map<String, Value>)> {
    let context: Value = serde_json::from_str(context).unwrap_or_default();
    if let Some(calls) = context["toolCalls"].as_array() {
        let name = |call: &Value| call["name"].as_str().unwrap_or_default().to_owned();
        let arguments = |call: &Value| call["arguments"].as_object().cloned().unwrap_or_default();
        return calls.iter().map(|call| (name(call), arguments(call))).collect();
    }
    // Its server can list tools and nothing else.
    if scenario == "json-schema-ref-no-deref" {
        return Vec::new();
    }
    // A tool takes back the schema of the other one, to see that nothing of it was lost.
    if scenario == "json-schema-2020-12-preservation"
        && let [first, echo] = tools
    {
        let schema = Value::Object(first.input_schema.clone());
        return vec![(echo.name.clone(), Map::from_iter([("schema".to_owned(), schema)]))];
    }
    tools.iter().map(|tool| (tool.name.clone(), arguments(tool))).collect()
}

/// What a tool's schema requires, filled with anything of the right type.
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
