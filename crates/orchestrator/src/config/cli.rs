//! Flags and commands of `cynode-orchestrator`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use settings::{Error, Flags};

/// The orchestrator: serves an OpenAI-compatible API and hands chats off to the project manager.
///
/// Settings come from flags, a file (orchestrator.toml), ORCHESTRATOR_… variables (such as
/// ORCHESTRATOR_GATEWAY__URL) and defaults, in this order of precedence.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cynode-orchestrator", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file; orchestrator.toml by default, if it exists.
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address for clients.
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Address for health and metrics.
    #[arg(long, global = true, value_name = "ADDRESS")]
    admin_listen: Option<String>,

    /// NATS servers, separated by commas.
    #[arg(long, global = true, value_name = "URL")]
    nats_url: Option<String>,

    /// MCP endpoint of the gateway.
    #[arg(long, global = true, value_name = "URL")]
    gateway_url: Option<String>,

    /// Any other setting, such as --set chat.keep_alive=10s. Repeatable.
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
    /// Check that the orchestrator on this machine is alive, for health checks of containers; exit code 0 if
    /// so.
    Health {
        /// Check instead that it is ready to serve.
        #[arg(long)]
        ready: bool,
    },
    /// Connect to NATS and the gateway, check that the streams and tools exist, then exit.
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
            .with("api.listen", self.listen.as_deref())
            .with("admin.listen", self.admin_listen.as_deref())
            .with("nats.url", self.nats_url.as_deref())
            .with("gateway.url", self.gateway_url.as_deref()))
    }
}
