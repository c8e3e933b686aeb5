//! Configuration: flag > file > environment > default, checked as a whole before anything is opened.

mod check;
mod cli;
mod raw;
mod sandbox;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use access::unauthenticated;
pub use cli::{Cli, Command};
use registry::upstreams;
use settings::{Error, Program};

pub const PROGRAM: Program = Program {
    name: "cynode-gateway",
    default_file: "gateway.toml",
    prefix: "GATEWAY_",
    plain_variables: &[],
    renamed: &[
        ("log.format", "telemetry.log_format"),
        ("log.level", "telemetry.log_level"),
        ("nats.tls", "nats.tls.required"),
        ("nats.ca_file", "nats.tls.ca_file"),
        ("nats.cert_file", "nats.tls.cert_file"),
        ("nats.key_file", "nats.tls.key_file"),
        ("strangers.per_second", "unauthenticated.per_second"),
        ("strangers.report_every", "unauthenticated.report_every"),
    ],
    explain_unknown: |_| None,
};

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub data: PathBuf,
    pub mcp: Mcp,
    pub admin: admin::Settings,
    pub store: store::Options,
    pub audit: Audit,
    pub calls: Calls,
    pub leases: Leases,
    pub connections: listener::Limits,
    pub unauthenticated: unauthenticated::Settings,
    pub upstreams: upstreams::Settings,
    pub sandbox: control::SandboxSettings,
    pub memory: control::MemorySettings,
    pub workflows: Workflows,
    /// `None`: no heads are published, and the console shows no handoffs.
    pub nats: Option<Nats>,
    /// Time that running calls get after a signal to stop.
    pub grace: Duration,
    pub telemetry: telemetry::Options,
    /// Reloaded when it changes.
    pub file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct Mcp {
    pub listen: SocketAddr,
    /// Host names of the gateway; a request for another name is refused.
    pub hosts: Vec<String>,
    /// Origins of browsers that may call. None by default.
    pub origins: Vec<String>,
    pub max_body_bytes: usize,
    /// How long a request may take to arrive.
    pub read_timeout: Duration,
    /// Whether common tool calls are answered without rmcp's server.
    pub fast_path: bool,
}

#[derive(Clone, Debug)]
pub struct Audit {
    pub signing_key_file: PathBuf,
    pub head_file: PathBuf,
    pub seal_every: Duration,
    /// Retention of rows. `None`: forever.
    pub keep: Option<Duration>,
    /// Whether rows are appended to SQLite without sea-orm.
    pub fast_append: bool,
    /// How long after its end a lease of a node may be without the last line of its audit.
    pub node_grace: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub max_result_bytes: usize,
    /// Calls per second of each token.
    pub per_second: u32,
    /// Retention of idempotency keys and their answers.
    pub keep_keys: Duration,
}

#[derive(Clone, Debug)]
pub struct Leases {
    /// Whether managers need a lease.
    pub mode: policy::LeaseMode,
    /// Key that signs leases.
    pub signing_key_file: PathBuf,
    /// How long a lease lasts before it must be renewed.
    pub lifetime: Duration,
    /// For how long a lease can be renewed.
    pub renewable_for: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Workflows {
    /// How long a runner may be silent before its message is delivered to another.
    pub ack_wait: Duration,
}

#[derive(Clone, Debug)]
pub struct Nats {
    pub options: broker::Options,
    /// Key that signs replayed handoffs, and those of workflows.
    pub signing_key_file: Option<PathBuf>,
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
        let config = check::check(&settings.checker(), &settings.raw, settings.file.clone())?;
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
