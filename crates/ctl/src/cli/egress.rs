//! The commands about external providers.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Egress {
    /// List usage of external providers by user and day, newest first.
    Usage {
        /// Filter by user.
        #[arg(long)]
        user: Option<String>,
        /// Filter by provider.
        #[arg(long)]
        provider: Option<String>,
        /// Maximum number of rows, at most 1000.
        #[arg(long, default_value_t = 200)]
        limit: u64,
    },
}
