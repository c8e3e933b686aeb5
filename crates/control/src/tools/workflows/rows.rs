//! The rows of workflows: how they are found, locked and fenced.

use contract::workflow::Status;
use policy::AgentKind;
use sea_orm::{ConnectionTrait, DatabaseExecutor, EntityTrait, QuerySelect};
use store::entity::workflow;
use subjects::ScopeId;

use super::refusal;
use crate::{Attribution, Context, ToolError, arguments::check};

pub(super) fn status_of(row: &workflow::Model) -> Result<Status, ToolError> {
    check::parse_stored("status of a workflow", &row.status)
}

/// Returns the workflow of a task. Fails with a refusal if there is none.
pub(super) async fn find(db: &impl ConnectionTrait, task: &str) -> Result<workflow::Model, ToolError> {
    let found = workflow::Entity::find_by_id(task).one(db).await?;
    found.ok_or_else(|| refusal::not_found(task))
}

/// Locks the workflow of a task until the transaction ends. Tasks are locked before.
pub(super) async fn lock(db: &DatabaseExecutor<'_>, task: &str) -> Result<workflow::Model, ToolError> {
    let found = workflow::Entity::find_by_id(task).lock_exclusive().one(db).await?;
    found.ok_or_else(|| refusal::not_found(task))
}

/// Fails unless the epoch is that of the runner that holds the workflow. A runner whose lease has expired
/// still holds it, until another one takes it.
pub(super) fn check_epoch(row: &workflow::Model, epoch: i64) -> Result<(), ToolError> {
    if row.epoch == epoch && row.status == Status::Running.as_str() {
        return Ok(());
    }
    Err(refusal::stale_epoch(&row.task_id, epoch))
}

/// Locks the workflow that a runner holds. The call is recorded for the user, project and task of the
/// workflow, also if it is refused.
pub(super) async fn lock_held(
    context: &Context<'_>,
    task: &ScopeId,
    epoch: i64,
) -> Result<workflow::Model, ToolError> {
    let row = lock(&context.db, task.as_str()).await?;
    attribute(context, &row, None);
    check_epoch(&row, epoch)?;
    Ok(row)
}

/// Reads the workflow that a runner holds.
pub(super) async fn find_held(
    context: &Context<'_>,
    task: &ScopeId,
    epoch: i64,
) -> Result<workflow::Model, ToolError> {
    let row = find(&context.db, task.as_str()).await?;
    attribute(context, &row, None);
    check_epoch(&row, epoch)?;
    Ok(row)
}

/// Records the call of a runner for whom the workflow is.
pub(super) fn attribute(context: &Context<'_>, row: &workflow::Model, job: Option<&str>) {
    if context.caller.agent.kind() != AgentKind::Workflow {
        return;
    }
    context.attribution.set(Attribution {
        user_id: Some(row.user_id.clone()),
        project_id: row.project_id.clone(),
        task_id: Some(row.task_id.clone()),
        job_id: job.map(str::to_owned),
        ..Attribution::default()
    });
}
