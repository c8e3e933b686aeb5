//! Flags and commands of `cynode-pma`.

use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use settings::{Error, Flags};

/// An event-driven agent worker on NATS JetStream.
///
/// Settings come from flags, a file (pma.toml), PMA_… variables (such as PMA_NATS__URL) and defaults, in this
/// order of precedence.
#[derive(Debug, Default, Parser)]
#[command(name = "cynode-pma", version, arg_required_else_help = false)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Role of this instance: project_manager or project_analyst.
    #[arg(long, global = true)]
    role: Option<String>,

    /// Configuration file; pma.toml by default, if it exists.
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,

    /// NATS server, or several separated by commas.
    #[arg(long, global = true, value_name = "URL")]
    nats_url: Option<String>,

    /// Folder that holds the instruction bundles of both roles.
    #[arg(long, global = true, value_name = "DIR")]
    instructions_root: Option<String>,

    /// Bundle of the project manager.
    #[arg(long, global = true, value_name = "DIR")]
    project_manager_bundle: Option<String>,

    /// Bundle of the project analyst.
    #[arg(long, global = true, value_name = "DIR")]
    project_analyst_bundle: Option<String>,

    /// Address for /healthz, /readyz and /metrics.
    #[arg(long, global = true, value_name = "ADDRESS")]
    http_listen: Option<String>,

    /// Any other setting, such as --set worker.ack_wait=30s. Repeatable.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Take handoffs until a signal stops it. The default command.
    Run,
    /// Check configuration, bundle, NATS, streams, model and gateway, then exit.
    Check,
    /// Print every setting with its value and where it came from.
    Config {
        /// Print the reference of all settings as a Markdown table instead.
        #[arg(long)]
        reference: bool,
    },
    /// Check that the worker on this machine is alive, for health checks of containers; exit code 0 if so.
    Health {
        /// Check instead that it is ready to work.
        #[arg(long)]
        ready: bool,
    },
}

impl Cli {
    pub fn command(&self) -> Command {
        self.command.unwrap_or(Command::Run)
    }

    pub(super) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    pub(super) fn flags(&self) -> Result<Flags, Error> {
        let flags = Flags::from_pairs(&self.set)?;
        Ok(flags
            .with("role", self.role.as_deref())
            .with("nats.url", self.nats_url.as_deref())
            .with("instructions.root", self.instructions_root.as_deref())
            .with("instructions.project_manager", self.project_manager_bundle.as_deref())
            .with("instructions.project_analyst", self.project_analyst_bundle.as_deref())
            .with("http.listen", self.http_listen.as_deref()))
    }
}
