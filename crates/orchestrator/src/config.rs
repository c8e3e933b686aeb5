//! Configuration: flag > file > environment > default, checked as a whole before anything is opened.

mod check;
mod cli;
mod egress;
mod raw;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

pub use cli::{Cli, Command};
pub use egress::{Auth, Egress, Prices, Provider};
use settings::{Error, Program};

pub const PROGRAM: Program = Program {
    name: "cynode-orchestrator",
    default_file: "orchestrator.toml",
    prefix: "ORCHESTRATOR_",
    plain_variables: &[],
    renamed: &[],
    explain_unknown: egress::explain_setting,
};

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub api: Api,
    pub admin: Admin,
    pub nats: Nats,
    pub gateway: Gateway,
    pub chat: Chat,
    pub direct: Direct,
    pub egress: Egress,
    pub rate_limits: RateLimits,
    pub connections: listener::Limits,
    /// Time that running requests get after a signal to stop.
    pub grace: Duration,
    pub telemetry: telemetry::Options,
}

/// The listener for clients.
#[derive(Clone, Debug)]
pub struct Api {
    pub listen: SocketAddr,
    /// Host names of the API; a request for another name is refused.
    pub hosts: Vec<String>,
    /// Origins of web pages that may call. None by default.
    pub origins: Vec<String>,
    pub max_body_bytes: usize,
    /// How long a request may take to arrive.
    pub read_timeout: Duration,
}

/// The listener for probes and metrics.
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    pub listen: SocketAddr,
}

#[derive(Clone, Debug)]
pub struct Nats {
    pub options: broker::Options,
    /// Key that signs handoffs.
    pub signing_key_file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct Gateway {
    pub url: String,
    pub token_file: Option<PathBuf>,
    pub timeout: Duration,
    pub fast_path: bool,
}

/// How text is sent that a model is writing and that may turn out not to be the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drafts {
    /// As the answer.
    Content,
    /// As what leads to the answer.
    Reasoning,
    /// Not at all.
    Off,
}

#[derive(Clone, Debug)]
pub struct Chat {
    pub max_messages: usize,
    pub max_streams: usize,
    /// A stream is never silent for longer.
    pub keep_alive: Duration,
    /// Whether a stream shows text before it is known to be the answer.
    pub drafts: Drafts,
    /// How long a request without streaming waits for its answer.
    pub wait: Duration,
    /// Answers the prompts that front ends make for themselves. `None`: they are answered by rule.
    pub task_model: Option<String>,
    pub sweep_every: Duration,
    /// Whether handoffs are published again that the queue has lost.
    pub resend_lost: bool,
    pub key_cache: Duration,
}

/// Models that are not the project manager.
#[derive(Clone, Debug)]
pub struct Direct {
    pub models: Vec<DirectModel>,
    pub connect_timeout: Duration,
    /// Longest silence of a model server.
    pub silence: Duration,
}

#[derive(Clone, Debug)]
pub struct DirectModel {
    /// The id that clients use.
    pub id: String,
    /// The name of the model at its server.
    pub name: String,
    /// The base URL of its server, as in `http://127.0.0.1:11434/v1`.
    pub url: String,
    pub key_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
pub struct RateLimits {
    pub requests_per_minute: u32,
    pub concurrent_turns: u64,
    pub unauthenticated_per_second: u32,
}

/// A checked configuration, and where its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    settings: settings::Loaded<raw::Raw>,
}

impl Config {
    /// Merges all sources and checks the result.
    pub fn load(cli: &Cli) -> Result<Loaded, Error> {
        let settings: settings::Loaded<raw::Raw> =
            PROGRAM.load(cli.file(), cli.flags()?, std::env::vars())?;
        let config = check::check(&settings.checker(), &settings.raw)?;
        Ok(Loaded { config, settings })
    }
}

impl Loaded {
    /// Lists every setting with its value and its source.
    pub fn describe(&self) -> String {
        self.settings.describe(|_| None)
    }

    /// Returns warnings for the operator, to be logged once logging is set up.
    pub fn warnings(&self) -> &[String] {
        &self.settings.warnings
    }
}

/// Renders the reference of all settings as a Markdown table.
pub fn reference() -> String {
    PROGRAM.reference::<raw::Raw>()
}
