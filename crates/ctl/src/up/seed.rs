use reqwest::Method;
use serde_json::json;
use subjects::ScopeId;

use super::parts::Parts;
use crate::{
    chat::Tasks,
    cli::GatewayLink,
    error::Error,
    gateway::{Ask, Gateway},
};

pub(super) const PROJECT: &str = "website";
pub(super) const TITLE: &str = "The new website";
const TASKS: [(&str, &str); 3] = [
    ("collect-the-texts", "Collect the texts of the old site"),
    ("choose-a-host", "Choose where the site will live"),
    ("check-the-links", "Check every link of the new site"),
];

pub(super) fn project() -> Result<ScopeId, Error> {
    PROJECT.parse().map_err(Error::nats)
}

fn gateway(parts: &Parts) -> Result<Gateway, Error> {
    Gateway::open(&GatewayLink { gateway: parts.admin_url(), admin_token_file: Some(parts.admin_token()) })
}

pub(super) async fn is_gateway_there(parts: &Parts) -> bool {
    match gateway(parts) {
        Ok(gateway) => gateway.list(&["tokens"]).await.is_ok(),
        // Its token is made when it starts.
        Err(_) => false,
    }
}

/// Managers share a token. One of an earlier start that is still good is kept.
pub(super) async fn give_tokens(parts: &Parts) -> Result<(), Error> {
    let file = parts.manager_token();
    if file.is_file() && Tasks::open(&parts.mcp_url(), &file)?.are_within_reach().await {
        return Ok(());
    }
    let new = json!({ "agent": "project_manager", "label": "local managers", "lives": "30days" });
    let issued = gateway(parts)?.change(Method::POST, Ask::path(&["tokens"]), Some(&new)).await?;
    // One that is no good any more makes room.
    drop(std::fs::remove_file(&file));
    let secret = issued["secret"].as_str().unwrap_or_default();
    crate::gateway::keep_secret(&file, secret)
}

/// A project with a few tasks. Done again it changes nothing: the calls have keys.
pub(super) async fn seed(parts: &Parts) -> Result<Tasks, Error> {
    let about = "The site moves to a static generator; nothing of the old one may be lost.";
    let project = json!({ "name": PROJECT, "title": TITLE, "description": about });
    gateway(parts)?.change(Method::PUT, Ask::path(&["projects", PROJECT]), Some(&project)).await?;
    let tools = Tasks::open(&parts.mcp_url(), &parts.manager_token())?;
    for (name, title) in TASKS {
        let task = json!({ "name": name, "title": title, "project_id": PROJECT });
        tools.call("db.task.create", task, Some(&format!("seed/{name}"))).await?;
    }
    Ok(tools)
}
