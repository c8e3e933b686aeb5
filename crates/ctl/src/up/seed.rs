//! Seeds a new stack: tokens for its processes, an API key, and a small project to talk about.

use std::path::Path;

use api::{
    AddedUpstream, IssuedToken, Me, NewToken, NewUpstream, Preference, Project, PutPreference, PutProject,
    Scope, Stdio, Token, TokenKind, Transport, Upstream,
};
use contract::task;
use serde_json::json;
use subjects::{PreferenceScope, ScopeId};

use super::config::{NODE, PROVIDER, StackConfig};
use crate::{
    chat::Tasks,
    cli::{GatewayLink, LOCAL_USER},
    error::Error,
    gateway::{ApiRequest, Gateway, leases::HandoffLeases, tokens::create_private_file},
};

pub(super) const PROJECT: &str = "website";
/// The namespace of a small MCP server, and its program.
const SERVER: &str = "words";
const SERVER_PROGRAM: &str = include_str!("word_server.py");
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
    Gateway::open(&config.gateway_link())
}

/// Returns whether the gateway answers an authenticated request.
pub(super) async fn probe_gateway(config: &StackConfig) -> bool {
    match gateway(config) {
        Ok(gateway) => gateway.ask::<Vec<Token>>(ApiRequest::get(&["tokens"])).await.is_ok(),
        // The gateway writes the admin token when it starts.
        Err(_) => false,
    }
}

/// Returns what issues leases for the person at the terminal.
pub(super) fn handoff_leases(config: &StackConfig) -> Result<HandoffLeases, Error> {
    Ok(HandoffLeases { gateway: gateway(config)?, user: LOCAL_USER.parse().map_err(Error::nats)? })
}

/// Issues the tokens that all managers and all analysts share, those of orchestrator, node and runner, and an
/// API key, unless those of an earlier start are still valid.
pub(super) async fn ensure_tokens(config: &StackConfig) -> Result<(), Error> {
    ensure_token(config, &config.manager_token(), "local managers", TokenKind::ProjectManager).await?;
    ensure_token(config, &config.analyst_token(), "local analysts", TokenKind::ProjectAnalyst).await?;
    let orchestrator = config.orchestrator_token();
    ensure_token(config, &orchestrator, "local orchestrator", TokenKind::Orchestrator).await?;
    if config.node.is_some() {
        let new = NewToken { node: Some(NODE.to_owned()), ..new_token("local node", TokenKind::Node) };
        ensure(config, &config.node_token(), &new).await?;
    }
    if config.runner.is_some() {
        ensure_token(config, &config.runner_token(), "local runner", TokenKind::Workflow).await?;
    }
    ensure_api_key(config).await
}

/// Allows all users of the stack to use its external provider.
pub(super) async fn allow_provider(config: &StackConfig) -> Result<(), Error> {
    for role in ["project_manager", "project_analyst"] {
        let allowed = PutPreference {
            scope: PreferenceScope::System,
            scope_id: None,
            key: format!("agents.{role}.model_routing.allowed_external_providers"),
            value: json!([PROVIDER]),
            version: None,
        };
        gateway(config)?.ask::<Preference>(ApiRequest::put(&["preferences"]).body(&allowed)).await?;
    }
    Ok(())
}

/// Issues an API key for the person at the terminal, unless that of an earlier start is still valid.
async fn ensure_api_key(config: &StackConfig) -> Result<(), Error> {
    let file = config.api_key();
    let link = GatewayLink { gateway: config.admin_url(), admin_token_file: Some(file.clone()) };
    if file.is_file() && Gateway::open(&link)?.ask::<Me>(ApiRequest::get(&["me"])).await.is_ok() {
        return Ok(());
    }
    let new =
        NewToken { user_id: Some(LOCAL_USER.to_owned()), ..new_token("local API key", TokenKind::User) };
    issue(config, &file, &new).await
}

async fn ensure_token(config: &StackConfig, file: &Path, label: &str, agent: TokenKind) -> Result<(), Error> {
    ensure(config, file, &new_token(label, agent)).await
}

async fn ensure(config: &StackConfig, file: &Path, new: &NewToken) -> Result<(), Error> {
    if file.is_file() && Tasks::open(&config.mcp_url(), file)?.check_token().await {
        return Ok(());
    }
    issue(config, file, new).await
}

fn new_token(label: &str, agent: TokenKind) -> NewToken {
    NewToken { lives: Some("30days".to_owned()), ..NewToken::new(label, agent) }
}

async fn issue(config: &StackConfig, file: &Path, new: &NewToken) -> Result<(), Error> {
    let issued: IssuedToken = gateway(config)?.ask(ApiRequest::post(&["tokens"]).body(new)).await?;
    // An invalid token of an earlier start.
    drop(std::fs::remove_file(file));
    create_private_file(file, &issued.secret)
}

/// Installs a small MCP server that belongs to the person at the terminal, unless an earlier start has.
pub(super) async fn install_server(config: &StackConfig) -> Result<(), Error> {
    let gateway = gateway(config)?;
    let installed: Vec<Upstream> = gateway.ask(ApiRequest::get(&["upstreams"])).await?;
    if installed.iter().any(|server| server.namespace == SERVER) {
        return Ok(());
    }
    let file = config.server_file();
    // One of a server that was removed since.
    drop(std::fs::remove_file(&file));
    create_private_file(&file, SERVER_PROGRAM)?;
    let argv = vec!["python3".to_owned(), file.display().to_string()];
    let new = NewUpstream {
        namespace: SERVER.to_owned(),
        transport: Transport::Stdio(Stdio { argv, ..Stdio::default() }),
        prefix: true,
        scope: Scope::Pm,
        call_timeout: None,
        concurrency: None,
        owner: Some(LOCAL_USER.to_owned()),
        trust_first: true,
    };
    let added: AddedUpstream = gateway.ask(ApiRequest::post(&["upstreams"]).body(&new)).await?;
    match added.problem {
        Some(problem) => Err(Error::Tour(format!("the MCP server {SERVER} does not start: {problem}"))),
        None => Ok(()),
    }
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
    let project = self::project()?;
    let there = tools.list(Some(&project)).await?;
    let is_missing = |name: &str| there.iter().all(|task| task.name != name);
    for (name, title) in TASKS.into_iter().filter(|(name, _)| is_missing(name)) {
        let task = task::Create {
            name: Some(name.to_owned()),
            title: Some(title.to_owned()),
            project_id: Some(project.clone()),
            // Without an owner, it could not be verified on behalf of a user.
            user_id: Some(LOCAL_USER.parse().map_err(Error::nats)?),
            ..task::Create::default()
        };
        tools.call(&task, Some(&format!("seed/{LOCAL_USER}/{name}"))).await?;
    }
    Ok(tools)
}
