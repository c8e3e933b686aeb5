//! Third-party servers and clients: the reference servers from npm as upstreams, over stdio and HTTP, and the
//! official Python SDKs of both eras as clients.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{
    GatewayProcess, Process, binary, eventually, free_port, loopback_preload, python, python_newer, run,
    server_everything, server_filesystem,
};

/// An agent written with the official SDK: lists tools, calls them, prints the results.
const CLIENT: &str = r#"
import asyncio, json, sys
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def main(url, token, calls):
    async with streamablehttp_client(url, headers={"Authorization": "Bearer " + token}) as (read, write, _):
        async with ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.list_tools()
            answers = []
            for name, arguments in calls:
                try:
                    result = await session.call_tool(name, arguments)
                    content = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
                    answers.append({"error": bool(result.isError), "content": content})
                except Exception as error:
                    answers.append({"refused": str(error)})
            print(json.dumps({"tools": [tool.name for tool in listed.tools], "answers": answers}))

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"#;

/// The same with the SDK of the newer era, through FastMCP's client.
const NEWER_CLIENT: &str = r#"
import asyncio, json, sys
from fastmcp import Client
from fastmcp.client.auth import BearerAuth

async def main(url, token, calls):
    async with Client(url, auth=BearerAuth(token)) as client:
        tools = await client.list_tools()
        answers = []
        for name, arguments in calls:
            try:
                result = await client.call_tool_mcp(name, arguments)
                content = [block.model_dump(mode="json", exclude_none=True) for block in result.content]
                error = bool(getattr(result, "isError", getattr(result, "is_error", False)))
                answers.append({"error": error, "content": content})
            except Exception as error:
                answers.append({"refused": str(error)})
        print(json.dumps({"tools": [tool.name for tool in tools], "answers": answers}))

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"#;

fn agent(interpreter: &Path, script: &str, gateway: &GatewayProcess, token: &str, calls: &Value) -> Value {
    let file = gateway.folder().join("agent.py");
    std::fs::write(&file, script).unwrap();
    let arguments = [file.display().to_string(), gateway.url(), token.to_owned(), calls.to_string()];
    let finished = run(interpreter, gateway.folder(), &arguments, &[("NO_PROXY", "127.0.0.1")]);
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    let last = finished.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", finished.stdout))
}

async fn add(gateway: &GatewayProcess, namespace: &str, transport: Value) {
    let new =
        json!({ "namespace": namespace, "transport": transport, "trust_first": true, "call_timeout": "20s" });
    let added = gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
    assert!(added["problem"].is_null() && added["approved"].as_u64() > Some(0), "{added}");
}

struct Everything {
    _process: Process,
    url: String,
}

/// The reference server over HTTP. By default it would listen on every interface.
async fn everything_over_http(gateway: &GatewayProcess) -> Everything {
    let (node, script) = server_everything();
    let port = free_port();
    let arguments = [
        "--require".to_owned(),
        loopback_preload().display().to_string(),
        script.display().to_string(),
        "streamableHttp".to_owned(),
    ];
    let log = gateway.folder().join("everything.log");
    let process = Process::start(&node, &arguments, &[("PORT".to_owned(), port.to_string())], &log);
    eventually("the reference server to listen", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()
    })
    .await;
    Everything { _process: process, url: format!("http://127.0.0.1:{port}/mcp") }
}

/// Both reference servers, over both transports, called by an agent of the older era.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_peer_calls_node_peer_servers_through_the_gateway() {
    let gateway = GatewayProcess::start().await;
    let (node, everything) = server_everything();
    let (_, filesystem) = server_filesystem();
    let shared = gateway.folder().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::write(shared.join("note.txt"), "from the file").unwrap();
    let node = node.display().to_string();
    let stdio = |arguments: &[String]| {
        let argv: Vec<&String> = std::iter::once(&node).chain(arguments).collect();
        json!({ "stdio": { "argv": argv } })
    };
    add(&gateway, "local", stdio(&[everything.display().to_string(), "stdio".to_owned()])).await;
    add(&gateway, "files", stdio(&[filesystem.display().to_string(), shared.display().to_string()])).await;
    let remote = everything_over_http(&gateway).await;
    add(&gateway, "remote", json!({ "http": { "url": remote.url } })).await;

    let manager = gateway.manager().await;
    let outside = "/etc/hostname";
    let calls = json!([
        ["local.echo", { "message": "over a pipe" }],
        ["remote.echo", { "message": "over HTTP" }],
        ["files.read_text_file", { "path": shared.join("note.txt").display().to_string() }],
        ["files.read_text_file", { "path": outside }],
        ["db.project.list", {}],
        ["no.such.tool", {}],
    ]);
    for (interpreter, script) in [(python(), CLIENT), (python_newer(), NEWER_CLIENT)] {
        let said = agent(&interpreter, script, &gateway, &manager, &calls);
        let answers = said["answers"].as_array().unwrap();
        let text = |at: usize| answers[at]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert!(text(0).contains("over a pipe") && text(1).contains("over HTTP"), "{said}");
        assert!(text(2).contains("from the file"), "{said}");
        assert_eq!(answers[3]["error"], true, "the server refuses: {said}");
        assert_eq!(answers[4]["error"], false, "{said}");
        assert!(answers[5]["refused"].as_str().is_some_and(|told| told.contains("Unknown tool")), "{said}");
        let tools = said["tools"].to_string();
        for tool in ["local.echo", "remote.echo", "files.read_text_file", "db.task.create"] {
            assert!(tools.contains(&format!("\"{tool}\"")), "{tool}: {tools}");
        }
    }
    // Each call of each agent has its audit row.
    for tool in ["local.echo", "remote.echo", "files.read_text_file"] {
        let rows = gateway.audit(&format!("tool={tool}")).await.len();
        assert_eq!(rows, if tool.starts_with("files") { 4 } else { 2 }, "{tool}");
    }
    // A sandbox sees fewer tools, and a disabled tool is hidden from all.
    gateway.must("PATCH", "/api/v1/tools/local.echo", Some(json!({ "enabled": false }))).await;
    let sandbox = gateway.bound("sandbox", "ada", "task-1").await;
    let said = agent(
        &python(),
        CLIENT,
        &gateway,
        &sandbox,
        &json!([["local.echo", { "message": "x" }], ["db.project.list", {}]]),
    );
    assert!(said["answers"].as_array().unwrap().iter().all(|answer| answer["refused"].is_string()), "{said}");
    assert!(!said["tools"].to_string().contains("db.task"), "{said}");
}

/// When an upstream changes a tool, the tool is quarantined and no longer listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_peer_does_not_see_a_tool_that_changed() {
    let gateway = GatewayProcess::start().await;
    let program = binary("mcp-stdio-server").display().to_string();
    add(&gateway, "fickle", json!({ "stdio": { "argv": [program, "changing"] } })).await;
    let manager = gateway.manager().await;
    let refreshed = gateway.must("POST", "/api/v1/upstreams/fickle/refresh", None).await;
    eventually("the change to be detected", async || {
        let waiting = gateway.must("GET", "/api/v1/quarantine", None).await;
        waiting.to_string().contains("changed since it was approved").then_some(())
    })
    .await;
    let said = agent(&python(), CLIENT, &gateway, &manager, &json!([["fickle.echo", { "text": "x" }]]));
    assert!(said["answers"][0]["refused"].is_string(), "{refreshed} {said}");
    assert!(!said["tools"].to_string().contains("fickle.echo"), "{said}");
}
