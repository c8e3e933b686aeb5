//! Configuration: flag > file > environment > default.
//!
//! What is written (`raw`) becomes one checked [`Config`] before anything connects; a wrong value is told
//! with its key, its source and what would be right.

mod check; // raw -> checked
mod cli; // flags
mod describe; // `cynode-pma config`
mod environment; // variables as an argument
mod error;
mod raw; // as written, with the defaults

use std::{
    collections::BTreeMap, net::SocketAddr, num::NonZeroU32, num::NonZeroUsize, path::PathBuf, time::Duration,
};

pub use cli::{Cli, Command};
pub use describe::Loaded;
pub use error::Error;
use figment::{
    Figment,
    providers::{Format, Serialized, Toml},
};
use subjects::{InstanceId, Kind, Role, signature::TrustedProducer};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "pma.toml";

/// Everything an instance needs to know, known to be right.
#[derive(Clone, Debug)]
pub struct Config {
    pub role: Role,
    pub instance: InstanceId,
    pub nats: Nats,
    pub instructions: Instructions,
    pub gateway: Option<Gateway>,
    pub inference: Inference,
    pub worker: Worker,
    pub agent: Agent,
    pub analysts: Analysts,
    pub security: Security,
    pub http: Option<SocketAddr>,
    pub telemetry: Telemetry,
    /// Values that were put right, in words; told once the log is open.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Nats {
    pub options: broker::Options,
    pub provision: broker::Provision,
    pub replicas: usize,
    /// How long the queue remembers message ids.
    pub dedupe_window: Duration,
}

/// Where the bundles are. The other role's is known only so that it is never loaded by mistake.
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
    /// How long a gateway that is away is waited for, from the first call that failed.
    pub patience: Duration,
    pub max_result_bytes: usize,
}

#[derive(Clone, Debug)]
pub struct Inference {
    pub backend: Backend,
    /// The longest silence of a model.
    pub timeout: Duration,
    pub tries: u32,
    /// How long a model that is away is waited for, from the first try that failed.
    pub patience: Duration,
    pub skills: bool,
    pub prices: Option<Prices>,
    /// Where everything that is asked and answered is written down.
    pub record_to: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Deterministic, needs nothing; `delay` is its thinking time.
    Offline { delay: Duration },
    /// OpenAI-compatible servers: our own, and providers behind the egress.
    Endpoints { local: Option<Endpoint>, egress: Option<Egress> },
    /// Answers from a recording, and refuses what was not recorded.
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

/// The way to external providers: `<url>/<provider>` is each one's OpenAI-compatible address.
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

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    pub prompt: f64,
    pub completion: f64,
}

#[derive(Clone, Debug)]
pub struct Worker {
    /// How many handoffs of a kind run at once; only the kinds of this role.
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
    /// The longest that one handoff may be worked on.
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
    /// Empty: every producer that NATS lets through is trusted.
    pub trusted_producers: Vec<TrustedProducer>,
    pub signing_key_file: Option<PathBuf>,
    pub reply_prefixes: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Telemetry {
    pub log_format: telemetry::Format,
    pub log_level: String,
    pub otlp_endpoint: Option<telemetry::Endpoint>,
}

impl Config {
    /// Reads all sources and checks what comes out. The environment is an argument, so that tests need not
    /// change the real one.
    pub fn load(cli: &Cli, environment: impl IntoIterator<Item = (String, String)>) -> Result<Loaded, Error> {
        let environment = environment::Environment::new(environment)?;
        let mut figment = Figment::from(Serialized::defaults(raw::Raw::default())).merge(&environment);
        if let Some(file) = cli.config_file(&environment)? {
            figment = figment.merge(Toml::file_exact(file));
        }
        let figment = figment.merge(cli.overrides()?);
        let config = check::check(&figment)?;
        Ok(Loaded { config, figment })
    }
}
