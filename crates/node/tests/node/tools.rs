//! Jobs that call tools through their node.

use serde_json::json;

use crate::stage::Stage;

/// Calls tools over the unix socket of the job, as any MCP client of the newer era does.
pub(crate) const CLIENT: &str = r#"
import http.client, json, os, socket, sys

class Socket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["CYNODE_MCP_SOCKET"])

def send(method, params):
    connection = Socket("localhost")
    params["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "job", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }
    if "name" in params:
        headers["mcp-name"] = params["name"]
    connection.request("POST", "/mcp", body, headers)
    return connection.getresponse().read().decode()

print(send("tools/call", {"name": sys.argv[1], "arguments": json.loads(sys.argv[2])}))
"#;

#[tokio::test]
async fn job_calls_the_tools_that_it_was_given_and_no_others() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let put = json!({ "task_id": stage.task, "path": "note.txt", "content": "kept by the gateway" });
    stage.call("artifact.put", put).await;
    let call = |tool: &str| {
        let arguments = json!({ "task_id": stage.task, "path": "note.txt" }).to_string();
        json!({
            "command": ["python3", "client.py", tool, arguments],
            "files": [{ "path": "client.py", "text": CLIENT }],
        })
    };
    let allowed = stage.run(call("artifact.get"), json!({ "tools": ["artifact.get"] })).await;
    let denied = stage.run(call("artifact.list"), json!({ "tools": ["artifact.get"] })).await;
    let without = stage.run(call("artifact.get"), json!({})).await;
    assert_eq!(stage.ended(&allowed).await["exit_code"], 0, "{}", stage.log(&allowed).await);
    assert!(stage.log(&allowed).await.contains("kept by the gateway"), "{}", stage.log(&allowed).await);
    stage.ended(&denied).await;
    assert!(!stage.log(&denied).await.contains("note.txt\\\","), "{}", stage.log(&denied).await);
    assert!(stage.log(&denied).await.contains("error"), "{}", stage.log(&denied).await);
    assert_ne!(stage.ended(&without).await["exit_code"], 0);
    assert!(stage.log(&without).await.contains("CYNODE_MCP_SOCKET"), "{}", stage.log(&without).await);
}

/// Each bad argument has a message of its own, and no job is created.
#[tokio::test]
async fn bad_arguments_are_named() {
    let stage = Stage::start().await;
    let digest = format!("python@sha256:{}", "ab".repeat(32));
    let cases = [
        (json!({}), "`command` or `script`"),
        (json!({ "command": ["x"], "script": "y" }), "not both"),
        (json!({ "command": ["a\0b"] }), "NUL"),
        (json!({ "script": "x", "image": "python:3" }), "digest"),
        (json!({ "script": "x", "image": digest }), "not allowed"),
        (json!({ "script": "x", "limits": { "memory_mb": 0 } }), "memory_mb"),
        (json!({ "script": "x", "limits": { "seconds": 99_999_999 } }), "seconds"),
        (json!({ "script": "x", "limits": { "gpu": 1 } }), "gpu"),
        (json!({ "script": "x", "files": [{ "path": "../x", "text": "" }] }), ".."),
        (json!({ "script": "x", "files": [{ "path": "/etc/x", "text": "" }] }), "/etc/x"),
        (json!({ "script": "x", "files": [{ "path": "x", "artifact_path": "none.txt" }] }), "none.txt"),
        (json!({ "script": "x", "files": [{ "path": "x", "base64": "%" }] }), "base64"),
        (json!({ "script": "x", "outputs": ["../*"] }), ".."),
        (json!({ "script": "x", "outputs": ["a[" ] }), "pattern"),
        (json!({ "script": "x", "artifacts": ["*.py"] }), "no artifact"),
        (json!({ "script": "x", "env": { "A=B": "" } }), "A=B"),
        (json!({ "script": "x", "network": ["http://x/"] }), "host"),
        (json!({ "script": "x", "network": ["1.2"] }), "\"1.2\""),
        (json!({ "script": "x", "tools": ["db.task.create"] }), "db.task.create"),
        (json!({ "script": "x", "wait_seconds": 3600 }), "wait_seconds"),
        (json!({ "script": "x", "colour": "red" }), "colour"),
    ];
    for (more, expected) in cases {
        let mut arguments = json!({ "task_id": stage.task });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let why = stage.refused("sandbox.run", arguments).await;
        assert!(why.contains(expected), "{more}: {why}");
    }
    let jobs = stage.call("sandbox.job.list", json!({ "task_id": stage.task })).await;
    assert_eq!(jobs["items"], json!([]));
}

/// What the gateway let pass and the sandbox refuses is the job's fault: the node goes on.
#[tokio::test]
async fn job_that_no_sandbox_takes_ends_and_the_node_goes_on() {
    let stage = Stage::start().await;
    let digest = format!("sha256:{}", "ab".repeat(32));
    let switch = "/api/v1/settings/sandbox.allowed_images.agents_may_add";
    stage.gateway.must("PUT", switch, Some(json!({ "value": true }))).await;
    let image = format!("python@{digest}");
    stage.call("sandbox.allowed_images.add", json!({ "image": image })).await;
    // The node lists the image, but does not have its files.
    let images = format!("[{{ digest = {digest:?} }}]");
    let node = stage.node("n1").await.set("sandbox.images", images).start().await;
    let bad = json!({ "image": image, "engine": "bwrap", "repeat": "safe" });
    for _ in 0..6 {
        let id = stage.script("true", bad.clone()).await;
        let job = stage.ended(&id).await;
        assert_eq!((&job["end"]["how"], &job["attempt"]), (&json!("engine_failed"), &json!(1)), "{job}");
    }
    let upper = stage.script("true", json!({ "network": ["PyPI.org"] })).await;
    assert_eq!(stage.ended(&upper).await["exit_code"], 0);
    assert!(!node.log().contains("Outage"), "{}", node.log());
}
