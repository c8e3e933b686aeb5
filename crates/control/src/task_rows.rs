//! The rows of tasks: how they are found and locked, what they depend on, and how they are cancelled.

mod dependents;
pub(super) mod graph;
pub(super) mod name;

use contract::task::{Status, Task, TaskSummary};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use store::{clock, entity::task};
use subjects::ScopeId;

pub(super) use self::dependents::{
    Locked, cancel, give_owner, lock_with_all_dependents, lock_with_neighbours, set_status,
};
use crate::{Context, ToolError, arguments::check, confinement::Confinement};

const FINAL: [Status; 3] = [Status::Completed, Status::Failed, Status::Canceled];

pub(super) fn status_of(row: &task::Model) -> Result<Status, ToolError> {
    check::parse_stored("status of a task", &row.status)
}

pub(super) fn is_final(status: Status) -> bool {
    FINAL.contains(&status)
}

pub(super) fn into_task(row: task::Model) -> Result<Task, ToolError> {
    Ok(Task {
        status: status_of(&row)?,
        task_id: row.id,
        name: row.name,
        title: row.title,
        description: row.description,
        // The gateway writes this JSON; if it was damaged, the task is still returned.
        acceptance_criteria: serde_json::from_str(&row.acceptance_criteria).unwrap_or_default(),
        project_id: row.project_id,
        user_id: row.user_id,
        parent_task_id: row.parent_task_id,
        schedule_id: row.schedule_id,
        run_id: row.run_id,
        order: row.position,
        version: row.version,
        created_at: clock::text(row.created_at),
        updated_at: clock::text(row.updated_at),
    })
}

pub(super) fn into_summary(row: task::Model) -> Result<TaskSummary, ToolError> {
    Ok(TaskSummary { status: status_of(&row)?, task_id: row.id, name: row.name, title: row.title })
}

/// Finds a task by id. A caller that is not confined to one task may also give its name, if no other task
/// that it may access has the same name. A task of another user is not found.
pub(super) async fn find(context: &Context<'_>, id: &ScopeId) -> Result<task::Model, ToolError> {
    let missing = || ToolError::not_found("task", id.as_str());
    let confinement = Confinement::to_tasks(context);
    if let Some(found) = task::Entity::find_by_id(id.as_str()).one(&context.db).await? {
        let is_within = confinement.is_none_or(|confinement| confinement.includes_task(&found));
        return if is_within { Ok(found) } else { Err(missing()) };
    }
    let mut named = task::Entity::find().filter(task::Column::Name.eq(id.as_str())).limit(2);
    if let Some(confinement) = confinement {
        // The decision compared the argument with the id of its task; as a name it could mean another task.
        if confinement.task.is_some() {
            return Err(missing());
        }
        named = named.filter(confinement.tasks());
    }
    let mut named = named.all(&context.db).await?;
    match (named.pop(), named.is_empty()) {
        (None, _) => Err(missing()),
        (Some(found), true) => Ok(found),
        (Some(_), false) => {
            Err(ToolError::Conflict(format!("several tasks are called {id}; give the id instead")))
        }
    }
}

/// Finds a task like [`find`] and locks it until the transaction ends.
pub(super) async fn lock(context: &Context<'_>, id: &ScopeId) -> Result<task::Model, ToolError> {
    let found = find(context, id).await?;
    let locked = task::Entity::find_by_id(&found.id).lock_exclusive().one(&context.db).await?;
    locked.ok_or_else(|| ToolError::not_found("task", id.as_str()))
}

/// Finds a task like [`find`] and fails with a conflict if its status is final.
pub(super) async fn find_open(context: &Context<'_>, id: &ScopeId) -> Result<task::Model, ToolError> {
    let task = find(context, id).await?;
    let status = status_of(&task)?;
    if is_final(status) {
        return Err(ToolError::Conflict(format!("the task {} is {}", task.name, status.as_str())));
    }
    Ok(task)
}
