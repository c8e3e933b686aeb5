//! `cynodectl workflows`.

use std::path::PathBuf;

use api::WorkflowStatus;
use clap::{Args, Subcommand};

use super::gateway::named;

#[derive(Debug, Subcommand)]
pub(crate) enum Workflows {
    /// List workflows, last changed first.
    #[command(visible_alias = "ls")]
    List {
        /// Filter by status: queued, running, waiting, done, failed or cancelled.
        #[arg(long, value_parser = named::<WorkflowStatus>)]
        status: Option<WorkflowStatus>,
        /// Filter by project.
        #[arg(long, value_name = "ID")]
        project: Option<String>,
        /// Filter by user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// Maximum number of workflows, at most 200.
        #[arg(long, default_value_t = 50)]
        limit: u64,
    },
    /// Show a workflow: where it is, its steps, what it asks, and what it began.
    #[command(after_help = "With --follow, exit codes are: 0 done; 1 failed or cancelled; 2 it waits for a \
                            person.")]
    Show {
        #[command(flatten)]
        of: OfTask,
        /// Print a line for each event, until the workflow ends or waits for a person.
        #[arg(long, short)]
        follow: bool,
    },
    /// Start the workflow of a task. One that is active is left as it is.
    Start {
        #[command(flatten)]
        of: OfTask,
        /// JSON file with a list of steps. They are planned by a manager if not given.
        #[arg(long, value_name = "FILE")]
        steps: Option<PathBuf>,
        /// User on whose behalf the workflow acts, if the task belongs to no user.
        #[arg(long = "user", value_name = "ID")]
        user_id: Option<String>,
    },
    /// End a workflow with its jobs and handoffs, and cancel its task and whatever depends on it.
    Cancel {
        #[command(flatten)]
        of: OfTask,
        /// Reason, shown with the workflow.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Pause a workflow until it is resumed. Jobs and handoffs that it began continue.
    Pause {
        #[command(flatten)]
        of: OfTask,
    },
    /// Resume a paused workflow, or answer its question.
    Resume {
        #[command(flatten)]
        of: OfTask,
        /// The answer to its question; yes or no where it asks for approval.
        input: Option<String>,
        /// The question that is answered, as `show` prints it; needed for an approval. Refused if another
        /// one is open.
        #[arg(long = "question", value_name = "ID", requires = "input")]
        question_id: Option<String>,
    },
    /// Retry a workflow that failed or was cancelled, from the step that failed.
    Retry {
        #[command(flatten)]
        of: OfTask,
        /// Plan and do everything again.
        #[arg(long)]
        from_start: bool,
    },
}

/// The task whose workflow is meant.
#[derive(Args, Debug)]
pub(crate) struct OfTask {
    /// Id of the task, or its name if no other task is called so.
    pub(crate) task: String,
}
