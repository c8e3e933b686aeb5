//! `db.task.*`: tasks, their statuses and their dependencies.

mod create;
mod dependency;
mod graph;
pub(super) mod name;
mod read;
mod status;
mod update;

use contract::task::{
    Create, Get, List, MAX_CRITERIA, MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES, Task, TaskSummary, Update,
    UpdateStatus,
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use subjects::ScopeId;

pub(super) use self::status::{is_final, status_of};
use super::{Context, Entry, ToolError, check, confinement::Confinement};
use store::{clock, entity::task};

const MAX_CRITERION_BYTES: usize = 2 * 1024;
/// All criteria of a task together, so that the task fits into one result.
const MAX_CRITERIA_BYTES: usize = 12 * 1024;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Create>(),
        Entry::of::<Get>(),
        Entry::of::<List>(),
        Entry::of::<Update>(),
        Entry::of::<UpdateStatus>(),
        Entry::of::<dependency::Add>(),
        Entry::of::<dependency::Remove>(),
        Entry::of::<dependency::List>(),
    ]
}

fn into_task(row: task::Model) -> Result<Task, ToolError> {
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

fn into_summary(row: task::Model) -> Result<TaskSummary, ToolError> {
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

fn check_title(title: &str) -> Result<(), ToolError> {
    check::non_blank("title", title, MAX_TITLE_BYTES)
}

fn check_description(description: &str) -> Result<(), ToolError> {
    check::text("description", description, MAX_DESCRIPTION_BYTES)
}

/// Checks the acceptance criteria and returns the JSON that is stored.
fn encode_criteria(criteria: &[String]) -> Result<String, ToolError> {
    check::count("acceptance criteria", criteria.len(), MAX_CRITERIA)?;
    for criterion in criteria {
        check::non_blank("acceptance criterion", criterion, MAX_CRITERION_BYTES)?;
    }
    check::to_json("acceptance criteria", &criteria.into(), MAX_CRITERIA_BYTES)
}
