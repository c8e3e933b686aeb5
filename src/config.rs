//! Configuration: flag > file > environment > default.
//!
//! Settings as written (`raw`) become one checked [`Config`] before anything connects. An error names the
//! key, its source and what is accepted.

mod check;
mod cli;
mod provider_keys;
mod raw;

use std::{
    collections::BTreeMap, net::SocketAddr, num::NonZeroU32, num::NonZeroUsize, path::PathBuf, time::Duration,
};

pub use cli::{Cli, Command};
use settings::Program;
use subjects::{InstanceId, Kind, Role, signature::TrustedProducer};

pub use settings::Error;

pub const PROGRAM: Program = Program {
    name: "cynode-pma",
    default_file: "pma.toml",
    prefix: "PMA_",
    plain_variables: &[("PLANNER_MAX_STEPS", "agent.max_steps"), ("MODEL_TEMPERATURE", "agent.temperature")],
    renamed: &[],
    explain_unknown: provider_keys::explain_setting,
};

/// The checked configuration of an instance.
#[derive(Clone, Debug)]
pub struct Config {
    pub role: Role,
    pub instance: InstanceId,
    pub nats: Nats,
    pub instructions: Instructions,
    pub gateway: Option<Gateway>,
    pub memory: Memory,
    pub inference: Inference,
    pub worker: Worker,
    pub agent: Agent,
    pub analysts: Analysts,
    pub security: Security,
    pub http: Option<SocketAddr>,
    pub telemetry: telemetry::Options,
    /// Warnings about values that were corrected; logged once the log is open.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Nats {
    pub options: broker::Options,
    pub provision: broker::Provision,
    pub replicas: usize,
    /// How long the server remembers message ids of the queue.
    pub dedupe_window: Duration,
}

/// Paths of the bundles. The other role's path is known only to refuse it.
#[derive(Clone, Debug)]
pub struct Instructions {
    pub own: PathBuf,
    pub other: PathBuf,
    pub skill: PathBuf,
}

#[derive(Clone, Debug)]
pub struct Gateway {
    pub url: String,
    pub token_file: Option<PathBuf>,
    pub timeout: Duration,
    /// How long to wait for an unavailable gateway, from the first failed call.
    pub patience: Duration,
    pub max_result_bytes: usize,
    /// Whether tools are called without rmcp's client where that is possible.
    pub fast_path: bool,
}

#[derive(Clone, Debug)]
pub struct Memory {
    /// G12: the profile that every tool call carries.
    pub profile: policy::MemoryProfile,
    /// Memories that a manager recalls for a handoff.
    pub recall: u64,
}

#[derive(Clone, Debug)]
pub struct Inference {
    pub backend: Backend,
    /// Longest time without data from a model.
    pub timeout: Duration,
    pub tries: u32,
    /// How long to wait for an unavailable model, from the first failed try.
    pub patience: Duration,
    pub skills: bool,
    /// How all models call tools; `None` decides for each.
    pub tool_mode: Option<ToolMode>,
    pub profiles: Vec<Profile>,
    pub prices: Option<Prices>,
    /// File to which all model and tool calls are recorded.
    pub record_to: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Deterministic, needs no server; `delay` simulates the response time.
    Offline { delay: Duration },
    /// OpenAI-compatible servers: a local one, and providers behind the egress.
    Endpoints { local: Option<Endpoint>, egress: Option<Egress> },
    /// Replays a recording and refuses what was not recorded.
    Replay { recording: PathBuf },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub base_url: String,
    pub model: String,
    pub fast_model: Option<String>,
    pub strong_model: Option<String>,
    pub token_file: Option<PathBuf>,
}

/// Proxy to external providers: `<url>/<provider>` is the OpenAI-compatible base URL of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    pub url: String,
    pub token_file: Option<PathBuf>,
    pub providers: Vec<Provider>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    pub name: String,
    pub model: String,
}

/// How a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolMode {
    /// By the calls of the chat protocol.
    Native,
    /// By typed steps: one constrained JSON object per turn.
    Typed,
}

/// How the models whose names match are asked. What is `None` is decided otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Name of the models, where `*` stands for any text.
    pub model: String,
    pub tool_mode: Option<ToolMode>,
    pub context_tokens: Option<usize>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub parallel_calls: Option<bool>,
    pub stop: Vec<String>,
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    pub prompt: f64,
    pub completion: f64,
}

#[derive(Clone, Debug)]
pub struct Worker {
    /// How many handoffs of each kind run at once. Contains only the kinds of this role.
    pub slots: BTreeMap<Kind, NonZeroUsize>,
    pub threads: NonZeroUsize,
    pub ack_wait: Duration,
    pub grace: Duration,
    pub max_attempts: NonZeroU32,
    pub sweep_every: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Agent {
    pub max_steps: u32,
    pub temperature: f64,
    pub context_tokens: usize,
    pub token_budget: u64,
    pub offered_tools: usize,
    pub max_reply_bytes: usize,
    pub think_timeout: Duration,
    /// Time limit for the work on one handoff.
    pub max_turn: Duration,
    pub assess_input: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Analysts {
    pub enabled: bool,
    pub max_concurrent: usize,
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Security {
    /// If empty, every producer that NATS lets through is trusted.
    pub trusted_producers: Vec<TrustedProducer>,
    pub signing_key_file: Option<PathBuf>,
    pub reply_prefixes: Vec<String>,
}

/// A checked configuration and the source of each of its values.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    settings: settings::Loaded<raw::Raw>,
}

impl Config {
    /// Merges and checks all sources. The environment is an argument, so that tests do not change the real
    /// one.
    pub fn load(cli: &Cli, environment: impl IntoIterator<Item = (String, String)>) -> Result<Loaded, Error> {
        let environment: Vec<_> = environment.into_iter().collect();
        provider_keys::refuse_variables(&environment)?;
        let mut settings: settings::Loaded<raw::Raw> = PROGRAM.load(cli.file(), cli.flags()?, environment)?;
        let mut config = check::check(settings.checker(), &settings.raw)?;
        settings.warnings.append(&mut config.warnings);
        config.warnings.clone_from(&settings.warnings);
        Ok(Loaded { config, settings })
    }
}

impl Loaded {
    /// Lists every setting as a line of TOML with its source, and the warnings.
    pub fn describe(&self) -> String {
        self.settings.describe(|key| self.effective(key))
    }

    /// Returns the effective value where it differs from the written one.
    fn effective(&self, key: &str) -> Option<String> {
        let config = &self.config;
        let path_of = |role: Role| {
            let instructions = &config.instructions;
            if role == config.role { &instructions.own } else { &instructions.other }
        };
        match key {
            "instance" => Some(format!("{:?}", config.instance.as_str())),
            "agent.max_steps" => Some(config.agent.max_steps.to_string()),
            "agent.temperature" => Some(config.agent.temperature.to_string()),
            "instructions.project_manager" => Some(format!("{:?}", path_of(Role::ProjectManager))),
            "instructions.project_analyst" => Some(format!("{:?}", path_of(Role::ProjectAnalyst))),
            "instructions.skill" => Some(format!("{:?}", config.instructions.skill)),
            _ => None,
        }
    }
}

/// Returns the address of the health endpoints, whatever the role.
///
/// Fails if there are none, or if the port is only known to the running instance.
pub fn http_address(
    cli: &Cli,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<SocketAddr, Error> {
    let settings: settings::Loaded<raw::Raw> = PROGRAM.load(cli.file(), cli.flags()?, environment)?;
    let listen = &settings.raw.http.listen;
    match settings.checker().address("http.listen", listen)? {
        address if address.port() == 0 => {
            let problem = "any free port: set the port to ask, as in 127.0.0.1:9180";
            Err(settings.checker().refuse("http.listen", problem))
        }
        address => Ok(address),
    }
}

/// Renders the reference of all settings as a Markdown table.
pub fn reference() -> String {
    PROGRAM.reference::<raw::Raw>()
}
