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
    /// Cordon a node: within a few seconds it takes no more jobs. Those that it runs continue.
    Cordon {
        /// Id of the node.
        id: String,
    },
    /// Drain a node: cordon it, and hand back the jobs that it still runs after a while.
    Drain {
        /// Id of the node.
        id: String,
        /// How long running jobs may continue; at most 24h.
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
        within: Duration,
    },
    /// Uncordon a node: it takes jobs again.
    Uncordon {
        /// Id of the node.
        id: String,
    },
    /// Remove a node that is away. Jobs that only it may run are moved to other nodes, or end as lost.
    Remove {
        /// Id of the node.
        id: String,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}
