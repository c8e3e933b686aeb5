use std::path::PathBuf;

use clap::{Parser, Subcommand};
use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use super::{
    DEFAULT_FILE, Error,
    environment::{Environment, insert, parse},
};

pub(super) const NAME: &str = "flag";

/// An event-driven agent worker on NATS JetStream.
///
/// Settings come from flags, a file (pma.toml), PMA_… variables and defaults, in this order of precedence.
#[derive(Debug, Default, Parser)]
#[command(name = "cynode-pma", version, arg_required_else_help = false)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// What this instance is: project_manager or project_analyst.
    #[arg(long, global = true)]
    role: Option<String>,

    /// Configuration file; without it pma.toml is read if it is there.
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

    /// Any other setting, as in --set worker.ack_wait=30s. May be given more than once.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Take handoffs until told to stop. This is what happens without a command.
    Run,
    /// Check configuration, bundle, NATS and streams, then leave.
    Check,
    /// Print every setting with its value and where it came from.
    Config,
}

impl Cli {
    pub fn command(&self) -> Command {
        self.command.unwrap_or(Command::Run)
    }

    /// The file to read: one that was named must be there, the default one may be absent.
    pub(super) fn config_file(&self, environment: &Environment) -> Result<Option<PathBuf>, Error> {
        let named = self.config.clone().or_else(|| environment.config_file.as_ref().map(PathBuf::from));
        let must_exist = named.is_some();
        let path = named.unwrap_or_else(|| DEFAULT_FILE.into());
        match std::fs::metadata(&path) {
            Ok(_) => Ok(Some(path)),
            Err(error) if must_exist => Err(Error::File(path, error)),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn overrides(&self) -> Result<Overrides, Error> {
        let mut dict = Dict::new();
        for pair in &self.set {
            let (key, value) = pair.split_once('=').ok_or_else(|| Error::Override(pair.clone()))?;
            insert(&mut dict, key.trim(), parse(value));
        }
        for (key, value) in [
            ("role", &self.role),
            ("nats.url", &self.nats_url),
            ("instructions.root", &self.instructions_root),
            ("instructions.project_manager", &self.project_manager_bundle),
            ("instructions.project_analyst", &self.project_analyst_bundle),
            ("http.listen", &self.http_listen),
        ] {
            if let Some(value) = value {
                insert(&mut dict, key, Value::from(value.as_str()));
            }
        }
        Ok(Overrides(dict))
    }
}

/// The flags that were given, and no others.
pub(super) struct Overrides(Dict);

impl Provider for Overrides {
    fn metadata(&self) -> Metadata {
        Metadata::named(NAME)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.0.clone()))
    }
}
