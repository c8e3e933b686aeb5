//! Builds what the agent works with (model, tools, analysts, recording) from the configuration.

use std::{path::PathBuf, sync::Arc, time::Duration};

use intake::Breakers;
use mcp::{Client, Token};
use secrets::signing_key;

use crate::{
    agent::{AgentResources, Settings},
    analysts::Analysts,
    config::{self, Config},
    context::Preamble,
    inference::{
        Backend, Endpoint, EndpointOptions, Inference, LOCAL, Limits, Models, Offline, Prices, Route, Routes,
    },
    instructions::Bundle,
    recording::{self, Recording},
    storage::Storage,
    telemetry::{Blocker, Breaker, Health, Metrics},
    tools::{Allowlist, Tools},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Recording(#[from] recording::Error),
    #[error("creating the HTTP client for the model")]
    Http(#[from] reqwest::Error),
    #[error("creating the MCP client")]
    Gateway(#[from] mcp::Error),
    #[error(transparent)]
    SigningKey(#[from] signing_key::Error),
}

/// Inputs besides the configuration.
pub(super) struct ResourceInputs<'a> {
    pub(super) bundle: &'a Bundle,
    pub(super) storage: &'a Storage,
    pub(super) shared: SharedParts<'a>,
}

/// State shared by the parts of a worker.
pub(super) struct SharedParts<'a> {
    pub(super) health: &'a Arc<Health>,
    pub(super) metrics: &'a Arc<Metrics>,
    pub(super) breakers: Breakers,
}

impl SharedParts<'_> {
    fn breaker(&self, needed: Blocker) -> Breaker {
        Breaker::new(needed, self.breakers.clone(), Arc::clone(self.health))
    }
}

pub(super) fn build(config: &Config, inputs: &ResourceInputs<'_>) -> Result<AgentResources, Error> {
    let patience = config.gateway.as_ref().map_or(Duration::ZERO, |gateway| gateway.patience);
    let tools = tools(config, &inputs.shared, patience)?;
    let recording = match (&config.inference.backend, &config.inference.record_to) {
        (config::Backend::Replay { recording }, _) => Recording::read_from(recording, &tools)?,
        (_, Some(path)) => Recording::write_to(path)?,
        (_, None) => Recording::Off,
    };
    let analysts = Analysts::new(
        inputs.storage.clone(),
        config.analysts.enabled.then_some(config.analysts.max_concurrent),
        config.security.signing_key_file.as_deref().map(signing_key::read).transpose()?,
        config.analysts.timeout,
    );
    Ok(AgentResources {
        role: config.role,
        storage: inputs.storage.clone(),
        preamble: Preamble::new(inputs.bundle, config.inference.skills),
        inference: inference(config, &inputs.shared)?,
        tools,
        analysts,
        recording,
        settings: Settings {
            max_steps: config.agent.max_steps,
            temperature: config.agent.temperature,
            context_tokens: config.agent.context_tokens,
            token_budget: config.agent.token_budget,
            offered_tools: config.agent.offered_tools,
            think_timeout: config.agent.think_timeout,
            assess_input: config.agent.assess_input,
            recalled_memories: config.memory.recall,
        },
    })
}

/// Returns the tools of the gateway, if there is one; it is waited for as long as `patience`.
pub(super) fn tools(config: &Config, shared: &SharedParts<'_>, patience: Duration) -> Result<Tools, Error> {
    install_tls_provider();
    let client = |gateway| client(gateway, &config.memory);
    Ok(Tools::new(
        config.gateway.as_ref().map(client).transpose()?,
        config.gateway.as_ref().and_then(|gateway| gateway.token_file.clone()),
        Allowlist::for_role(config.role),
        shared.breaker(Blocker::Gateway),
        patience,
        Arc::clone(shared.metrics),
    ))
}

/// Returns what asks the models.
pub(super) fn inference(config: &Config, shared: &SharedParts<'_>) -> Result<Inference, Error> {
    install_tls_provider();
    Ok(Inference {
        backend: backend(config, shared.metrics)?,
        limits: Limits {
            tries: config.inference.tries,
            patience: config.inference.patience,
            prices: config.inference.prices.map(prices),
        },
        breaker: shared.breaker(Blocker::Inference),
        metrics: Arc::clone(shared.metrics),
    })
}

/// Installs the TLS provider. The HTTP clients need one even if no connection is encrypted.
fn install_tls_provider() {
    // An error means that a provider is already installed.
    drop(rustls::crypto::ring::default_provider().install_default());
}

pub(super) fn client(gateway: &config::Gateway, memory: &config::Memory) -> Result<Client, mcp::Error> {
    Client::new(mcp::Options {
        url: gateway.url.clone(),
        token_file: gateway.token_file.clone(),
        connect_timeout: CONNECT_TIMEOUT,
        call_timeout: gateway.timeout,
        max_result_bytes: gateway.max_result_bytes,
        fast_path: gateway.fast_path,
        profile: Some(memory.profile.to_string()),
    })
}

fn backend(config: &Config, metrics: &Arc<Metrics>) -> Result<Backend, Error> {
    Ok(match &config.inference.backend {
        config::Backend::Offline { delay } => Backend::Offline(Offline::new(*delay)),
        config::Backend::Replay { .. } => Backend::Recorded,
        config::Backend::Endpoints { local, egress } => {
            let endpoint = |name: &str, base_url: &str, token_file: Option<&PathBuf>, models| {
                let token = token_file.cloned().map(Token::new);
                let options = EndpointOptions {
                    silence: config.inference.timeout,
                    max_bytes: config.agent.max_reply_bytes,
                    tool_mode: config.inference.tool_mode,
                    profiles: config.inference.profiles.clone(),
                    metrics: Arc::clone(metrics),
                };
                let endpoint = Endpoint::new(name, base_url, token, models, options)?;
                Ok::<Route, Error>(Route { provider: name.to_owned(), endpoint })
            };
            let local = local.as_ref().map(|it| {
                let models = Models {
                    usual: it.model.clone(),
                    fast: it.fast_model.clone(),
                    strong: it.strong_model.clone(),
                };
                endpoint(LOCAL, &it.base_url, it.token_file.as_ref(), models)
            });
            let external = egress.iter().flat_map(|egress| {
                egress.providers.iter().map(|provider| {
                    let url = format!("{}/{}", egress.url, provider.name);
                    let models = Models { usual: provider.model.clone(), fast: None, strong: None };
                    endpoint(&provider.name, &url, egress.token_file.as_ref(), models)
                })
            });
            let external = external.collect::<Result<Vec<Route>, Error>>()?;
            Backend::Routes(Box::new(Routes { local: local.transpose()?, external }))
        }
    })
}

fn prices(prices: config::Prices) -> Prices {
    Prices { prompt: prices.prompt, completion: prices.completion }
}
