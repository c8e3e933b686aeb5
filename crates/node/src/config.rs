//! Configuration: flag > file > environment > default, checked as a whole before anything is opened.

mod check;
mod cli;
mod raw;

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

pub use cli::{Cli, Command};
use sandbox::NetworkHost;
use settings::{Error, Program};
use subjects::{NodeId, PoolName, job::Engine};

pub const PROGRAM: Program = Program {
    name: "cynode-node",
    default_file: "node.toml",
    prefix: "CYNODE_NODE_",
    plain_variables: &[],
    renamed: &[],
    explain_unknown: |_| None,
};

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub node: Node,
    pub nats: Nats,
    pub gateway: Gateway,
    pub sandbox: Sandbox,
    pub edge: Edge,
    /// The listener for probes and metrics.
    pub admin: SocketAddr,
    pub telemetry: telemetry::Options,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    pub pool: PoolName,
    pub labels: BTreeMap<String, String>,
    pub slots: u32,
    pub data: PathBuf,
    /// Time that running jobs get after a signal to stop.
    pub grace: Duration,
    pub ack_wait: Duration,
}

#[derive(Clone, Debug)]
pub struct Nats {
    pub options: broker::Options,
    pub provision: broker::Provision,
    pub replicas: usize,
}

#[derive(Clone, Debug)]
pub struct Gateway {
    pub url: String,
    pub token_file: Option<PathBuf>,
    pub timeout: Duration,
    /// How long a job waits for a gateway that is away.
    pub patience: Duration,
}

#[derive(Clone, Debug)]
pub struct Sandbox {
    pub engines: Vec<Engine>,
    pub first_uid: u32,
    pub uids: u32,
    /// What jobs see of the node. The system's programs if empty.
    pub read_only: Vec<PathBuf>,
    pub images: Vec<Image>,
    /// Hosts with internal addresses that jobs may reach.
    pub internal_hosts: Vec<NetworkHost>,
}

#[derive(Clone, Debug)]
pub struct Image {
    pub digest: String,
    pub rootfs: Option<PathBuf>,
}

/// Tools that jobs call through the node.
#[derive(Clone, Debug)]
pub struct Edge {
    pub upstreams: Vec<edge::UpstreamSettings>,
    /// The loopback listener for jobs without a socket.
    pub listen: Option<SocketAddr>,
    pub lifetime: Duration,
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
