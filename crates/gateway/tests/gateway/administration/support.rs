use std::path::Path;

use sea_orm::{Database, DatabaseConnection, EntityTrait};
use serde_json::{Value, json};
use store::entity::upstream_tool;
use testkit::{Finished, GatewayProcess, cynodectl, run};

pub(crate) const TOKENS: &str = "/api/v1/tokens";
pub(crate) const UPSTREAMS: &str = "/api/v1/upstreams";

/// Names of the tools that an agent sees.
pub(crate) async fn seen(agent: &mcp::Client) -> Vec<String> {
    agent.tools().await.expect("a list").into_iter().map(|tool| tool.name).collect()
}

pub(crate) async fn manager(gateway: &GatewayProcess) -> mcp::Client {
    let (_, secret) = gateway.issue(json!({ "label": "pm", "agent": "project_manager" })).await;
    gateway.agent(&secret)
}

pub(crate) async fn user(gateway: &GatewayProcess, name: &str) -> String {
    gateway.issue(json!({ "label": name, "agent": "user", "user_id": name })).await.1
}

/// Direct access to the store, bypassing the gateway.
pub(crate) async fn store(gateway: &GatewayProcess) -> DatabaseConnection {
    Database::connect(gateway.store_url()).await.expect("the store opens")
}

pub(crate) fn offered(name: &str, description: &str) -> String {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } }).to_string()
}

/// Stores a tool as a refresh of its upstream would.
pub(crate) async fn offer(
    db: &DatabaseConnection,
    namespace: &str,
    remote: &str,
    pinned: Option<&str>,
    offered: &str,
) -> String {
    let hash = |text: &str| format!("hash-of-{}", text.len());
    let row = upstream_tool::Model {
        namespace: namespace.to_owned(),
        remote: remote.to_owned(),
        name: format!("{namespace}.{remote}"),
        pinned: pinned.map(str::to_owned),
        pinned_hash: pinned.map(hash),
        offered: Some(offered.to_owned()),
        offered_hash: Some(hash(offered)),
        state: upstream_tool::QUARANTINED.to_owned(),
        reason: "for a test".to_owned(),
        decided_by: None,
        seen_at: 1,
    };
    upstream_tool::Entity::insert(upstream_tool::ActiveModel::from(row)).exec(db).await.expect("a row");
    hash(offered)
}

/// An upstream on a port without a listener.
pub(crate) fn server(namespace: &str) -> Value {
    json!({ "namespace": namespace, "transport": { "http": { "url": "http://127.0.0.1:1/mcp" } } })
}

/// Runs cynodectl against the gateway, as its first administrator.
pub(crate) async fn ctl(gateway: &GatewayProcess, line: &[&str]) -> Finished {
    let mut arguments = vec![
        "--gateway".to_owned(),
        gateway.admin_url(),
        "--admin-token-file".to_owned(),
        gateway.admin_token_file().display().to_string(),
    ];
    arguments.extend(line.iter().map(|&word| word.to_owned()));
    bare_ctl(arguments).await
}

pub(crate) async fn bare_ctl(arguments: Vec<String>) -> Finished {
    let ran = move || run(&cynodectl(), Path::new("."), &arguments, &[("NATS_URL", "nats://127.0.0.1:1")]);
    tokio::task::spawn_blocking(ran).await.expect("cynodectl ends")
}

#[track_caller]
pub(crate) fn parsed(finished: &Finished) -> Value {
    serde_json::from_str(finished.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {finished:?}"))
}
