use std::path::PathBuf;

use clap::{Parser, Subcommand};
use figment::{
    Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use super::{DEFAULT_FILE, Error};

pub(super) const NAME: &str = "flag";

/// The MCP gateway: decides about, runs and records every tool call of the agents.
///
/// Settings come from flags, a file (gateway.toml), GATEWAY_… variables (as GATEWAY_STORE__URL) and defaults, in this
/// order of precedence.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cynode-gateway", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file; without it gateway.toml is read if it is there.
    #[arg(long, short, global = true, value_name = "FILE", env = "GATEWAY_CONFIG")]
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

    /// Any other setting, as in --set calls.per_second=50. May be given more than once.
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Serve until told to stop. This is what happens without a command.
    #[default]
    Run,
    /// Print every setting with its value and where it came from.
    Config,
    /// Open the store, bring it to its present shape, check the audit's chain, then leave.
    Check,
}

impl Cli {
    pub fn command(&self) -> Command {
        self.command.unwrap_or_default()
    }

    /// One that was named must be there, the default one may be absent.
    pub(super) fn file(&self) -> Result<Option<PathBuf>, Error> {
        let path = self.config.clone().unwrap_or_else(|| DEFAULT_FILE.into());
        match std::fs::metadata(&path) {
            Ok(_) => Ok(Some(path)),
            Err(error) if self.config.is_some() => Err(Error::File(path, error)),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn overrides(&self) -> Result<Overrides, Error> {
        let mut dict = Dict::new();
        for pair in &self.set {
            let (key, value) = pair.split_once('=').ok_or_else(|| Error::Override(pair.clone()))?;
            // Infallible: what is nothing else is text.
            let Ok(value) = value.parse::<Value>();
            insert(&mut dict, key.trim(), value);
        }
        for (key, value) in [
            ("data", &self.data),
            ("mcp.listen", &self.listen),
            ("admin.listen", &self.admin_listen),
            ("store.url", &self.store_url),
        ] {
            if let Some(value) = value {
                insert(&mut dict, key, Value::from(value.as_str()));
            }
        }
        Ok(Overrides(dict))
    }
}

fn insert(dict: &mut Dict, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            dict.insert(key.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = dict.entry(first.to_owned()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, inner) = inner {
                insert(inner, rest, value);
            }
        }
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
