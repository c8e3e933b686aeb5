//! `db.task.update_status`: the statuses of a task and the transitions between them.

use contract::task::{Status, StatusUpdate, UpdateStatus};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, ExprTrait, QueryFilter, sea_query::Expr,
};

use super::{
    graph::{self, Direction, MAX_IDS_PER_STATEMENT},
    into_summary, into_task,
};
use policy::{Scope, ScopedId};

use store::entity::task;

use crate::{BuiltInTool, Context, Does, ToolError, check};

/// How many of the tasks canceled along with another are listed in the output.
const MAX_LISTED: usize = 100;

const FINAL: [Status; 3] = [Status::Completed, Status::Failed, Status::Canceled];

pub(crate) fn status_of(row: &task::Model) -> Result<Status, ToolError> {
    check::parse_stored("status of a task", &row.status)
}

pub(crate) fn is_final(status: Status) -> bool {
    FINAL.contains(&status)
}

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
        final. A task becomes ready or running only when all it depends on is completed. Canceling it \
        cancels every task that depends on it, directly or not; the answer lists them.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<StatusUpdate, ToolError> {
        let wanted = input.status;
        let (task, dependents) = if wanted == Status::Canceled {
            let id = super::find(context, &input.task_id).await?.id;
            let mut locked =
                graph::lock_reachable(context, std::slice::from_ref(&id), Direction::Dependents).await?;
            let task = locked.remove(&id).ok_or_else(|| ToolError::not_found("task", id))?;
            (task, locked.into_values().collect())
        } else {
            (super::lock(context, &input.task_id).await?, Vec::new())
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
        let version = task.version + 1;
        let mut change = task::ActiveModel::from(task);
        change.status = Set(wanted.as_str().to_owned());
        change.version = Set(version);
        change.updated_at = Set(context.now);
        let task = into_task(change.update(&context.db).await?)?;
        let canceled = cancel(context, dependents).await?;
        let also_canceled_count = canceled.len();
        let named = canceled.into_iter().take(MAX_LISTED).map(into_summary);
        Ok(StatusUpdate { task, also_canceled: named.collect::<Result<_, _>>()?, also_canceled_count })
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
    let open = graph::dependencies(context, &task.id).await?;
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

/// Cancels the tasks whose status is not final, and returns them as they are afterwards.
async fn cancel(context: &Context<'_>, dependents: Vec<task::Model>) -> Result<Vec<task::Model>, ToolError> {
    let canceled = Status::Canceled.as_str();
    let is_open = |row: &task::Model| FINAL.iter().all(|status| status.as_str() != row.status);
    let mut open: Vec<task::Model> = dependents.into_iter().filter(is_open).collect();
    for chunk in open.chunks(MAX_IDS_PER_STATEMENT) {
        task::Entity::update_many()
            .col_expr(task::Column::Status, Expr::value(canceled))
            .col_expr(task::Column::Version, Expr::col(task::Column::Version).add(1))
            .col_expr(task::Column::UpdatedAt, Expr::value(context.now))
            .filter(task::Column::Id.is_in(chunk.iter().map(|row| row.id.as_str())))
            .exec(&context.db)
            .await?;
    }
    for row in &mut open {
        row.status = canceled.to_owned();
        row.version += 1;
    }
    open.sort_by(|one, other| (one.position, &one.name).cmp(&(other.position, &other.name)));
    Ok(open)
}
