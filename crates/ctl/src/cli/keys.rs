//! `cynodectl keys`.

use std::path::PathBuf;

use api::{OnDisconnect, TokenState};
use clap::{Args, Subcommand};

use super::gateway::named;

#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Create an API key. It is printed once.
    Create(NewKey),
    /// List API keys, newest first.
    #[command(visible_alias = "ls")]
    List {
        /// Filter by user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// Filter by state: active, expired or revoked.
        #[arg(long, value_parser = named::<TokenState>)]
        state: Option<TokenState>,
    },
    /// Revoke an API key, effective immediately.
    Revoke {
        /// Id of the key, as `keys list` shows it.
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NewKey {
    /// User whose requests are made with the key.
    #[arg(long, value_name = "ID")]
    pub(crate) user: String,
    /// Label that people recognise it by; the user by default.
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Lifetime; 30days by default, at most 365days.
    #[arg(long, value_name = "DURATION")]
    pub(crate) lives: Option<String>,
    /// Let requests name another user in a header. For a front end that has users of its own.
    #[arg(long)]
    pub(crate) front_end: bool,
    /// What happens to the work for a client that closes its connection: continue or cancel.
    #[arg(long, value_name = "POLICY", default_value = "continue", value_parser = named::<OnDisconnect>)]
    pub(crate) on_disconnect: OnDisconnect,
    /// Write the key to this new file, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}
