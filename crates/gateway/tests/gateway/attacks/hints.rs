//! What an upstream claims about its own tools.

use serde_json::{Value, json};
use testkit::{GatewayProcess, cynodectl, run};

use super::scripted_upstream::{ScriptedUpstream, tool};

fn reading(name: &str) -> Value {
    let mut tool = tool(name);
    tool["annotations"] = json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true });
    tool
}

/// Annotations of a tool in `tools/list`, which a worker relies on.
async fn annotations(gateway: &GatewayProcess, token: &str, name: &str) -> Value {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let (_, answer) = gateway.post(Some(token), body.to_string()).await;
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
    tools.into_iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}"))["annotations"]
        .clone()
}

async fn ctl(gateway: &GatewayProcess, line: &[&str]) -> testkit::Finished {
    let token = gateway.admin_token_file().display().to_string();
    let mut arguments: Vec<String> =
        ["--gateway", &gateway.admin_url(), "--admin-token-file", &token].map(str::to_owned).into();
    arguments.extend(line.iter().map(|&word| word.to_owned()));
    tokio::task::spawn_blocking(move || run(&cynodectl(), std::path::Path::new("."), &arguments, &[]))
        .await
        .unwrap()
}

/// `readOnlyHint` is a claim of the upstream. An administrator can override it, and on a user's upstream it
/// is ignored.
#[tokio::test]
async fn administrator_decides_whether_a_tool_only_reads() {
    let upstream = ScriptedUpstream::start(json!([reading("look"), tool("plain")])).await;
    let gateway = GatewayProcess::start().await;
    gateway.install("ours", &upstream.server.url()).await;
    let mut theirs = json!({ "namespace": "theirs", "owner": "ada", "trust_first": true });
    theirs["transport"] = json!({ "http": { "url": upstream.server.url() } });
    gateway.must("POST", "/api/v1/upstreams", Some(theirs)).await;
    let manager = gateway.manager().await;
    let hint = async |name: &str| annotations(&gateway, &manager, name).await["readOnlyHint"].clone();
    let shown = async |name: &str| {
        let tool = gateway.must("GET", &format!("/api/v1/tools/{name}"), None).await;
        (tool["does"].clone(), tool["does_by"].clone())
    };
    // The hint of an administrator's upstream counts as approved; on a user's upstream the tool may have an
    // effect.
    assert_eq!(
        (hint("ours.look").await, shown("ours.look").await),
        (json!(true), (json!("read"), json!("server")))
    );
    assert_eq!(shown("ours.plain").await, (json!("write"), json!("server")));
    let untrusted = annotations(&gateway, &manager, "theirs.look").await;
    assert_eq!(untrusted["readOnlyHint"], false, "{untrusted}");
    assert_ne!(untrusted["idempotentHint"], true, "{untrusted}");
    assert_ne!(untrusted["destructiveHint"], false, "{untrusted}");
    assert_eq!(shown("theirs.look").await, (json!("write"), json!("default")));
    // Overridden in both directions, effective at once.
    for (name, does) in [("ours.look", "write"), ("theirs.look", "read"), ("ours.plain", "read")] {
        let path = format!("/api/v1/tools/{name}");
        gateway.must("PATCH", &path, Some(json!({ "does": does }))).await;
        assert_eq!(hint(name).await, json!(does == "read"), "{name}");
        assert_eq!(shown(name).await, (json!(does), json!("administrator")));
        // Fields that are not in the request stay unchanged.
        gateway.must("PATCH", &path, Some(json!({ "enabled": true }))).await;
        assert_eq!(shown(name).await, (json!(does), json!("administrator")));
    }
    // The override survives a refresh, and can be removed.
    gateway.must("POST", "/api/v1/upstreams/ours/refresh", None).await;
    assert_eq!(hint("ours.look").await, false);
    gateway.must("PATCH", "/api/v1/tools/ours.look", Some(json!({ "does": "as_offered" }))).await;
    assert_eq!(shown("ours.look").await, (json!("read"), json!("server")));
    // Not for built-in tools, not by users, and with no other values.
    let own = gateway.ask("PATCH", "/api/v1/tools/db.task.create", Some(json!({ "does": "read" }))).await;
    assert_eq!(own.status, 422, "{own:?}");
    let ada = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "ada" })).await.1;
    let change = Some(json!({ "does": "read" }));
    assert_eq!(gateway.ask_as(&ada, "PATCH", "/api/v1/tools/theirs.look", change).await.status, 403);
    let wrong = gateway.ask("PATCH", "/api/v1/tools/ours.look", Some(json!({ "does": "maybe" }))).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert_eq!(gateway.audit("tool=admin.tool.set&decision=allow").await.len(), 7);
    assert_eq!(gateway.audit("tool=admin.tool.set&decision=deny").await.len(), 1);
}

#[tokio::test]
async fn command_line_sets_whether_a_tool_only_reads() {
    let upstream = ScriptedUpstream::start(json!([reading("look")])).await;
    let gateway = GatewayProcess::start().await;
    gateway.install("ours", &upstream.server.url()).await;
    let manager = gateway.manager().await;
    assert_eq!(ctl(&gateway, &["tools", "does", "ours.look", "write"]).await.code, 0);
    assert_eq!(annotations(&gateway, &manager, "ours.look").await["readOnlyHint"], false);
    let shown = ctl(&gateway, &["tools", "show", "ours.look"]).await;
    assert!(shown.stdout.contains("administrator"), "{shown:?}");
    assert_eq!(ctl(&gateway, &["tools", "does", "ours.look", "as-offered"]).await.code, 0);
    assert_eq!(annotations(&gateway, &manager, "ours.look").await["readOnlyHint"], true);
    assert_eq!(ctl(&gateway, &["tools", "does", "ours.look", "perhaps"]).await.code, 64);
}
