//! `db.task.*`

mod create;
mod dependency;
mod graph; // what depends on what
mod name; // names as people say them
mod read;
mod status;
mod update;

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde::Serialize;
use subjects::ScopeId;

use self::status::Status;
use super::{Context, Entry, ToolError, check};
use crate::{clock, store::entity::task};

const TITLE: usize = 300;
const DESCRIPTION: usize = 16 * 1024;
const CRITERIA: usize = 50;
const CRITERION: usize = 2 * 1024;
/// Together: a task has to fit into one result.
const ALL_CRITERIA: usize = 12 * 1024;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<create::Create>(),
        Entry::of::<read::Get>(),
        Entry::of::<read::List>(),
        Entry::of::<update::Update>(),
        Entry::of::<status::UpdateStatus>(),
        Entry::of::<dependency::Add>(),
        Entry::of::<dependency::Remove>(),
        Entry::of::<dependency::List>(),
    ]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Task {
    task_id: String,
    /// Unique in its project, or among the tasks of its user.
    name: String,
    title: String,
    description: String,
    acceptance_criteria: Vec<String>,
    status: Status,
    project_id: Option<String>,
    user_id: Option<String>,
    parent_task_id: Option<String>,
    schedule_id: Option<String>,
    run_id: Option<String>,
    order: i64,
    version: i64,
    created_at: String,
    updated_at: String,
}

impl TryFrom<task::Model> for Task {
    type Error = ToolError;

    fn try_from(row: task::Model) -> Result<Self, ToolError> {
        Ok(Self {
            status: Status::of(&row)?,
            task_id: row.id,
            name: row.name,
            title: row.title,
            description: row.description,
            // Written by us; one that somebody spoiled is no reason to withhold the task.
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
}

/// A task in a word.
#[derive(Debug, Serialize, JsonSchema)]
struct Brief {
    task_id: String,
    name: String,
    title: String,
    status: Status,
}

impl TryFrom<task::Model> for Brief {
    type Error = ToolError;

    fn try_from(row: task::Model) -> Result<Self, ToolError> {
        Ok(Self { status: Status::of(&row)?, task_id: row.id, name: row.name, title: row.title })
    }
}

/// The task of this id. A manager may also say its name, as long as no other task is called so.
pub(super) async fn find(context: &Context<'_>, id: &ScopeId) -> Result<task::Model, ToolError> {
    if let Some(found) = task::Entity::find_by_id(id.as_str()).one(&context.db).await? {
        return Ok(found);
    }
    // What a confined caller says was compared with the id of its task; a name could mean another one.
    let missing = || ToolError::not_found("task", id.as_str());
    if context.bound().is_some() {
        return Err(missing());
    }
    let named = task::Entity::find().filter(task::Column::Name.eq(id.as_str())).limit(2);
    let mut named = named.all(&context.db).await?;
    match (named.pop(), named.is_empty()) {
        (None, _) => Err(missing()),
        (Some(found), true) => Ok(found),
        (Some(_), false) => {
            Err(ToolError::Conflict(format!("several tasks are called {id}; say which by its id")))
        }
    }
}

/// The same, held until the end of the call, so that nobody changes it in between.
pub(super) async fn hold(context: &Context<'_>, id: &ScopeId) -> Result<task::Model, ToolError> {
    let found = find(context, id).await?;
    let held = task::Entity::find_by_id(&found.id).lock_exclusive().one(&context.db).await?;
    held.ok_or_else(|| ToolError::not_found("task", id.as_str()))
}

/// A task that work can still be added to.
pub(super) async fn find_open(context: &Context<'_>, id: &ScopeId) -> Result<task::Model, ToolError> {
    let task = find(context, id).await?;
    let status = Status::of(&task)?;
    if status.is_final() {
        return Err(ToolError::Conflict(format!("the task {} is {}", task.name, status.as_str())));
    }
    Ok(task)
}

fn check_title(title: &str) -> Result<(), ToolError> {
    check::words("title", title, TITLE)
}

fn check_description(description: &str) -> Result<(), ToolError> {
    check::text("description", description, DESCRIPTION)
}

/// The criteria as they are kept.
fn criteria(criteria: &[String]) -> Result<String, ToolError> {
    check::count("acceptance criteria", criteria.len(), CRITERIA)?;
    for criterion in criteria {
        check::words("acceptance criterion", criterion, CRITERION)?;
    }
    check::json("acceptance criteria", &criteria.into(), ALL_CRITERIA)
}
