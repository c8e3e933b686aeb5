//! `cynodectl jobs`.

use api::JobStatus;
use clap::Subcommand;

use super::gateway::named;

#[derive(Debug, Subcommand)]
pub(crate) enum Jobs {
    /// List jobs, newest first.
    #[command(visible_alias = "ls")]
    List {
        /// Filter by task.
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// Filter by status: queued, running, completed, failed or canceled.
        #[arg(long, value_parser = named::<JobStatus>)]
        status: Option<JobStatus>,
        /// Filter by the node that has or had it.
        #[arg(long, value_name = "ID")]
        node: Option<String>,
        /// Maximum number of jobs, at most 200.
        #[arg(long, default_value_t = 50)]
        limit: u64,
    },
    /// Show a job: why it waits, how it ended, and the files that it left.
    Show {
        /// Id of the job.
        id: String,
    },
    /// Print what a job wrote, byte for byte.
    Logs {
        /// Id of the job.
        id: String,
        /// Follow the log until the job has ended.
        #[arg(long, short)]
        follow: bool,
    },
    /// Cancel a job.
    Cancel {
        /// Id of the job.
        id: String,
    },
}
