//! Seeds a new stack: a token for the managers and a small project to talk about.

use contract::task;
use reqwest::Method;
use serde_json::json;
use subjects::ScopeId;

use super::config::StackConfig;
use crate::{
    chat::Tasks,
    cli::GatewayLink,
    error::Error,
    gateway::{ApiRequest, Gateway},
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

fn gateway(config: &StackConfig) -> Result<Gateway, Error> {
    Gateway::open(&GatewayLink { gateway: config.admin_url(), admin_token_file: Some(config.admin_token()) })
}

/// Returns whether the gateway answers an authenticated request.
pub(super) async fn probe_gateway(config: &StackConfig) -> bool {
    match gateway(config) {
        Ok(gateway) => gateway.list(&["tokens"]).await.is_ok(),
        // The gateway writes the admin token when it starts.
        Err(_) => false,
    }
}

/// Issues the token that all managers share, unless the one of an earlier start is still valid.
pub(super) async fn ensure_manager_token(config: &StackConfig) -> Result<(), Error> {
    let file = config.manager_token();
    if file.is_file() && Tasks::open(&config.mcp_url(), &file)?.check_token().await {
        return Ok(());
    }
    let new = json!({ "agent": "project_manager", "label": "local managers", "lives": "30days" });
    let issued = gateway(config)?.change(Method::POST, ApiRequest::path(&["tokens"]), Some(&new)).await?;
    // An invalid token of an earlier start.
    drop(std::fs::remove_file(&file));
    let secret = issued["secret"].as_str().unwrap_or_default();
    crate::gateway::create_private_file(&file, secret)
}

/// Creates a project with a few tasks. Idempotent: the calls have idempotency keys.
pub(super) async fn seed(config: &StackConfig) -> Result<Tasks, Error> {
    let about = "The site moves to a static generator; nothing of the old one may be lost.";
    let project = json!({ "name": PROJECT, "title": TITLE, "description": about });
    gateway(config)?.change(Method::PUT, ApiRequest::path(&["projects", PROJECT]), Some(&project)).await?;
    let tools = Tasks::open(&config.mcp_url(), &config.manager_token())?;
    for (name, title) in TASKS {
        let task = task::Create {
            name: Some(name.to_owned()),
            title: Some(title.to_owned()),
            project_id: Some(self::project()?),
            ..task::Create::default()
        };
        tools.call(&task, Some(&format!("seed/{name}"))).await?;
    }
    Ok(tools)
}
