//! `cynodectl nodes`.

use std::time::Duration;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Nodes {
    /// List nodes.
    #[command(visible_alias = "ls")]
    List,
    /// Show a node: its engines, how they were tested, and what it runs.
    Show {
        /// Id of the node.
        id: String,
    },
    /// Let a node take no more jobs. What it runs goes on.
    Cordon {
        /// Id of the node.
        id: String,
    },
    /// Let a node take no more jobs, and hand back what it still runs after a while.
    Drain {
        /// Id of the node.
        id: String,
        /// How long running jobs may go on, at most 24h.
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
        within: Duration,
    },
    /// Let a node take jobs again.
    Uncordon {
        /// Id of the node.
        id: String,
    },
    /// Remove a node that is away. What waited for it alone goes to other nodes, or ends.
    Remove {
        /// Id of the node.
        id: String,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}
