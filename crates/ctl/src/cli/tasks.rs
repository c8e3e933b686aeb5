//! `cynodectl tasks`.

use api::TaskStatus;
use clap::Subcommand;

use super::gateway::named;

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// List tasks, last changed first.
    #[command(visible_alias = "ls")]
    List {
        /// Filter by project.
        #[arg(long, value_name = "ID")]
        project: Option<String>,
        /// Filter by user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// Filter by status: pending, ready, running, blocked, completed, failed or canceled.
        #[arg(long, value_parser = named::<TaskStatus>)]
        status: Option<TaskStatus>,
        /// Filter by a text in the name, the title or the description.
        #[arg(long)]
        text: Option<String>,
        /// Maximum number of tasks, at most 200.
        #[arg(long, default_value_t = 50)]
        limit: u64,
    },
    /// Show a task: its description, acceptance criteria and status, and where its workflow is.
    Show {
        /// Id of the task, or its name if no other task is called so.
        id: String,
    },
}
