//! Helpers for the tests of upstreams.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};
use testkit::{Answer, Gateway, Tool, binary, eventually};
use upstream::{Breaker, Failure, Options, Transport, Upstream};

pub(crate) fn options(transport: Transport) -> Options {
    Options {
        name: "test".to_owned(),
        transport,
        connect_timeout: Duration::from_secs(10),
        call_timeout: Duration::from_secs(20),
        concurrency: 64,
        max_result_bytes: 64 * 1024,
        fast_path: true,
        breaker: Breaker { failures: 0, open_for: Duration::from_secs(60) },
    }
}

pub(crate) fn http(url: String) -> Options {
    options(Transport::Http { url, token_file: None, addresses: None })
}

/// Returns the transport of the test server `mcp-stdio-server`; its arguments set its behaviour.
pub(crate) fn program(arguments: &[&str]) -> Transport {
    let mut argv = vec![binary("mcp-stdio-server").display().to_string()];
    argv.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    Transport::Stdio { argv, env: BTreeMap::new(), secret_env: BTreeMap::new(), folder: None }
}

pub(crate) fn stdio(arguments: &[&str]) -> Options {
    options(program(arguments))
}

pub(crate) fn upstream(options: Options) -> Upstream {
    Upstream::new(options).unwrap()
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("not an object: {value}") };
    object
}

pub(crate) async fn call_with(
    upstream: &Upstream,
    name: &str,
    arguments: Value,
) -> Result<CallToolResult, Failure> {
    upstream.call(name, object(arguments), Map::new(), None).await
}

pub(crate) async fn call(upstream: &Upstream, name: &str) -> Result<CallToolResult, Failure> {
    call_with(upstream, name, json!({})).await
}

pub(crate) fn text(result: &CallToolResult) -> &str {
    result.content[0].as_text().unwrap().text.as_str()
}

/// Calls a tool without arguments and parses its text as JSON.
pub(crate) async fn call_json(upstream: &Upstream, name: &str) -> Value {
    serde_json::from_str(text(&call(upstream, name).await.unwrap())).unwrap()
}

pub(crate) async fn process_id(upstream: &Upstream) -> i32 {
    i32::try_from(call_json(upstream, "process").await["id"].as_i64().unwrap()).unwrap()
}

/// Waits until the process has ended; it may still be a zombie.
pub(crate) async fn wait_until_ended(id: i32) {
    eventually("the process has ended", async || {
        let state =
            procfs::process::Process::new(id).and_then(|process| process.stat()).map(|stat| stat.state);
        matches!(state, Err(_) | Ok('Z' | 'X')).then_some(())
    })
    .await;
}

/// Returns a tool without arguments.
pub(crate) fn tool(name: &str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Tool {
    Tool::new(name, "A tool of the test", json!({"type": "object"}), move |_| answer())
}

fn tools() -> Vec<Tool> {
    vec![
        Tool::new("echo", "Says it again", json!({"type": "object"}), |arguments| {
            Answer::text(Value::Object(arguments.clone()).to_string())
        }),
        tool("hang", Answer::hang),
        tool("reject", || Answer::rejected(-32602, "not\u{1b}[2J so\n")),
        tool("fail", || Answer::error("it did not work")),
        tool("large", || Answer::text("x".repeat(70_000))),
    ]
}

pub(crate) async fn gateway() -> Gateway {
    Gateway::start(tools()).await
}

pub(crate) async fn legacy_gateway() -> Gateway {
    Gateway::start_legacy(tools()).await
}
