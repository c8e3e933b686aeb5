//! Flags and commands of `cynode-node`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use settings::{Error, Flags};

/// Runs jobs in sandboxes on this machine.
///
/// Settings come from flags, a file (node.toml), CYNODE_NODE_… variables (such as CYNODE_NODE_GATEWAY__URL)
/// and defaults, in this order of precedence.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cynode-node", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file; node.toml by default, if it exists.
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Id of this node.
    #[arg(long, global = true, value_name = "ID")]
    id: Option<String>,

    /// Address for health and metrics.
    #[arg(long, global = true, value_name = "ADDRESS")]
    admin_listen: Option<String>,

    /// NATS servers, separated by commas.
    #[arg(long, global = true, value_name = "URL")]
    nats_url: Option<String>,

    /// MCP endpoint of the gateway.
    #[arg(long, global = true, value_name = "URL")]
    gateway_url: Option<String>,

    /// Any other setting, such as --set node.slots=4. Repeatable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Take and run jobs until a signal stops it. The default command.
    #[default]
    Run,
    /// Print every setting with its value and where it came from.
    Config {
        /// Print the reference of all settings as a Markdown table instead.
        #[arg(long)]
        reference: bool,
    },
    /// Check that the node on this machine is alive, for health checks of containers; exit code 0 if so.
    Health {
        /// Check instead that it takes jobs.
        #[arg(long)]
        ready: bool,
    },
    /// Open each engine, try to escape from it, connect to NATS and the gateway, then exit.
    Check {
        /// Check only the engines, not NATS and the gateway.
        #[arg(long)]
        engines: bool,
    },
}

impl Cli {
    pub fn command(&self) -> Command {
        self.command.clone().unwrap_or_default()
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    pub(super) fn flags(&self) -> Result<Flags, Error> {
        let flags = Flags::from_pairs(&self.set)?;
        Ok(flags
            .with("node.id", self.id.as_deref())
            .with("admin.listen", self.admin_listen.as_deref())
            .with("nats.url", self.nats_url.as_deref())
            .with("gateway.url", self.gateway_url.as_deref()))
    }
}
