//! `db.task.update_status`: the statuses of a task and the transitions between them.

use contract::task::{Status, StatusUpdate, UpdateStatus};

use super::{into_summary, into_task, is_final, status_of};
use policy::{Scope, ScopedId};

use store::entity::task;

use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::check,
    task_rows::{
        self, Locked,
        graph::{self, Direction},
    },
    tools::workflows::{TaskHooks, check_not_own},
};

/// How many of the tasks cancelled along with another are listed in the output.
const MAX_LISTED: usize = 100;

/// Returns the statuses that may follow.
fn next(status: Status) -> &'static [Status] {
    use Status::{Blocked, Canceled, Completed, Failed, Pending, Ready, Running};
    match status {
        Pending => &[Ready, Running, Blocked, Canceled],
        Ready => &[Pending, Running, Blocked, Canceled],
        // Back to ready: the agent that ran the task is gone, and another one may take it.
        Running => &[Ready, Blocked, Completed, Failed, Canceled],
        Blocked => &[Pending, Ready, Running, Failed, Canceled],
        Completed | Failed | Canceled => &[],
    }
}

impl BuiltInTool for UpdateStatus {
    const TITLE: &'static str = "Change a task's status";
    const DESCRIPTION: &'static str = "Changes the status of a task. completed, failed and canceled are \
        final. A task becomes ready or running only when all it depends on is completed. Cancelling it \
        cancels every task that depends on it, directly or not; the answer lists them.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<StatusUpdate, ToolError> {
        let wanted = input.status;
        let (db, id) = (&context.db, super::find(context, &input.task_id).await?.id);
        let Locked { task, others } = match wanted {
            Status::Canceled => task_rows::lock_with_all_dependents(db, &id).await?,
            // Their workflows may begin.
            Status::Completed => task_rows::lock_with_neighbours(db, &id, Direction::Dependents).await?,
            _ => Locked { task: super::lock(context, &input.task_id).await?, others: Vec::new() },
        };
        check::version("the task", input.expected_version, task.version)?;
        let status = status_of(&task)?;
        if status == wanted {
            let task = into_task(task)?;
            return Ok(StatusUpdate { task, also_canceled: Vec::new(), also_canceled_count: 0 });
        }
        if !next(status).contains(&wanted) {
            return Err(ToolError::Conflict(transition_error(&task.name, status, wanted)));
        }
        if matches!(wanted, Status::Ready | Status::Running) {
            check_dependencies_completed(context, &task).await?;
        }
        if wanted == Status::Canceled {
            let ended: Vec<&str> = others.iter().chain([&task]).map(|task| task.id.as_str()).collect();
            check_not_own(context, &ended).await?;
        }
        let hooks = TaskHooks::of(context);
        if is_final(wanted) && wanted != Status::Canceled {
            hooks.check_may_end(&task).await?;
        }
        let task = task_rows::set_status(db, task, wanted, context.now).await?;
        let canceled = match wanted {
            Status::Canceled => {
                let within = context.caller.bounds();
                task_rows::cancel(db, others, within.as_ref(), context.now).await?
            }
            _ => Vec::new(),
        };
        match wanted {
            Status::Canceled => hooks.canceled(canceled.iter().chain([&task])).await?,
            Status::Completed => hooks.completed(&task.id).await?,
            _ => {}
        }
        let also_canceled_count = canceled.len();
        let named = canceled.into_iter().take(MAX_LISTED).map(into_summary);
        let also_canceled = named.collect::<Result<_, _>>()?;
        Ok(StatusUpdate { task: into_task(task)?, also_canceled, also_canceled_count })
    }
}

/// Explains why a task cannot change to the wanted status.
fn transition_error(name: &str, status: Status, wanted: Status) -> String {
    let (status_text, wanted) = (status.as_str(), wanted.as_str());
    let following: Vec<&str> = next(status).iter().map(|next| next.as_str()).collect();
    if following.is_empty() {
        return format!("the task {name} is {status_text}, and that is final");
    }
    format!("the task {name} is {status_text} and cannot become {wanted}, only {}", following.join(", "))
}

/// Fails with a conflict, naming up to ten tasks, if the task waits for tasks that are not completed.
async fn check_dependencies_completed(context: &Context<'_>, task: &task::Model) -> Result<(), ToolError> {
    let open = graph::dependencies(&context.db, &task.id).await?;
    let open = open.iter().filter(|other| other.status != Status::Completed.as_str());
    let open: Vec<&str> = open.map(|other| other.name.as_str()).take(10).collect();
    if open.is_empty() {
        return Ok(());
    }
    Err(ToolError::Conflict(format!(
        "the task {} waits for {}, which must be completed first",
        task.name,
        open.join(", ")
    )))
}
