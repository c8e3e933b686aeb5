//! Checks that the third-party MCP peers run, and only on loopback.

use std::{fs, time::Duration};

use mcp::{Call, Client, Options};
use serde_json::{Map, json};
use testkit::{
    Process, eventually, free_port, loopback_preload, python, python_newer, run, server_everything,
    server_filesystem,
};

#[tokio::test]
async fn node_peer_everything_answers_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let (node, script) = server_everything();
    let port = free_port();
    let arguments = [
        "--require".to_owned(),
        loopback_preload().display().to_string(),
        script.display().to_string(),
        "streamableHttp".to_owned(),
    ];
    let variables = [("PORT".to_owned(), port.to_string())];
    let _server = Process::start(&node, &arguments, &variables, &folder.path().join("log"));
    let options = Options {
        url: format!("http://127.0.0.1:{port}/mcp"),
        token_file: None,
        connect_timeout: Duration::from_secs(2),
        call_timeout: Duration::from_secs(10),
        max_result_bytes: 4096,
        fast_path: true,
        profile: None,
    };
    let client = Client::new(options).unwrap();
    let tools = eventually("the server lists its tools", async || client.tools().await.ok()).await;
    assert!(tools.iter().any(|tool| tool.name == "echo"), "{tools:?}");
    let arguments = Map::from_iter([("message".to_owned(), json!("hello"))]);
    let call = Call { name: "echo", arguments, idempotency_key: None, traceparent: None, lease: None };
    assert!(client.call(call).await.unwrap().text.contains("hello"));
    assert_eq!(listeners(port), ["0100007F"], "only on loopback");
}

/// Returns the addresses that listen on a port, in the kernel's hex notation.
fn listeners(port: u16) -> Vec<String> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines()).map(|line| line.split_whitespace().collect());
    lines
        .filter(|fields: &Vec<&str>| fields.get(3) == Some(&"0A"))
        .filter_map(|fields| fields.get(1)?.split_once(':'))
        .filter(|(_, of)| *of == format!("{port:04X}"))
        .map(|(address, _)| address.to_owned())
        .collect()
}

const LIST: &str = r#"
import asyncio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        print(*(tool.name for tool in (await session.list_tools()).tools))

asyncio.run(main())
"#;

#[test]
fn python_peer_of_the_older_era_meets_node_peer_filesystem() {
    let folder = tempfile::tempdir().unwrap();
    let (node, script) = server_filesystem();
    let shown = folder.path().display().to_string();
    let arguments = ["-c", LIST, &node.display().to_string(), &script.display().to_string(), &shown];
    let finished = run(&python(), folder.path(), &arguments, &[]);
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(finished.stdout.split_whitespace().any(|name| name == "write_file"), "{}", finished.stdout);
}

#[test]
fn python_peer_of_the_newer_era_has_fastmcp() {
    let folder = tempfile::tempdir().unwrap();
    let tell = "import importlib.metadata as m; print(m.version('mcp'), m.version('fastmcp'))";
    let finished = run(&python_newer(), folder.path(), &["-c", tell], &[]);
    assert!(finished.stdout.starts_with("2."), "{finished:?}");
}
