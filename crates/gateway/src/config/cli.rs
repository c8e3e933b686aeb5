//! Flags and commands of `cynode-gateway`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use settings::{Error, Flags};

/// The MCP gateway: decides, runs and records every tool call of the agents.
///
/// Settings come from flags, a file (gateway.toml), GATEWAY_… variables (such as GATEWAY_STORE__URL) and
/// defaults, in this order of precedence.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cynode-gateway", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file; gateway.toml by default, if it exists.
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Folder for the store, keys and the first administrator's token.
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<String>,

    /// Address for agents.
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Address for administrators: REST, console, health and metrics.
    #[arg(long, global = true, value_name = "ADDRESS")]
    admin_listen: Option<String>,

    /// `sqlite://<path>` or `postgres://<user>@<host>/<database>`.
    #[arg(long, global = true, value_name = "URL")]
    store_url: Option<String>,

    /// Any other setting, such as --set calls.per_second=50. Repeatable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Serve until a signal stops it. The default command.
    #[default]
    Run,
    /// Print every setting with its value and where it came from.
    Config {
        /// Print the reference of all settings as a Markdown table instead.
        #[arg(long)]
        reference: bool,
    },
    /// Check that the gateway on this machine is alive, for health checks of containers; exit code 0 if so.
    Health {
        /// Check instead that it is ready to serve.
        #[arg(long)]
        ready: bool,
    },
    /// Open and migrate the store, verify the audit's hash chain, connect to NATS, then exit.
    Check,
}

impl Cli {
    pub fn command(&self) -> Command {
        self.command.unwrap_or_default()
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    pub(super) fn flags(&self) -> Result<Flags, Error> {
        let flags = Flags::from_pairs(&self.set)?;
        Ok(flags
            .with("data", self.data.as_deref())
            .with("mcp.listen", self.listen.as_deref())
            .with("admin.listen", self.admin_listen.as_deref())
            .with("store.url", self.store_url.as_deref()))
    }
}
