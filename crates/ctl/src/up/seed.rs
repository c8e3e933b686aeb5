//! Seeds a new stack: a token for the managers and a small project to talk about.

use api::{IssuedToken, NewToken, Project, PutProject, Token, TokenKind};
use contract::task;
use subjects::ScopeId;

use super::config::StackConfig;
use crate::{
    chat::Tasks,
    cli::GatewayLink,
    error::Error,
    gateway::{ApiRequest, Gateway, tokens::create_private_file},
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
        Ok(gateway) => gateway.ask::<Vec<Token>>(ApiRequest::get(&["tokens"])).await.is_ok(),
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
    let new = NewToken {
        label: "local managers".to_owned(),
        agent: TokenKind::ProjectManager,
        user_id: None,
        task_id: None,
        lives: Some("30days".to_owned()),
    };
    let issued: IssuedToken = gateway(config)?.ask(ApiRequest::post(&["tokens"]).body(&new)).await?;
    // An invalid token of an earlier start.
    drop(std::fs::remove_file(&file));
    create_private_file(&file, &issued.secret)
}

/// Creates a project with a few tasks. Idempotent: the calls have idempotency keys.
pub(super) async fn seed(config: &StackConfig) -> Result<Tasks, Error> {
    let about = "The site moves to a static generator; nothing of the old one may be lost.";
    let project = PutProject {
        name: PROJECT.to_owned(),
        title: TITLE.to_owned(),
        description: about.to_owned(),
        user_id: None,
    };
    let request = ApiRequest::put(&["projects", PROJECT]);
    gateway(config)?.ask::<Project>(request.body(&project)).await?;
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
