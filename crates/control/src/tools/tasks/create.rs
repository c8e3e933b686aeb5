//! `db.task.create`: creates a task with its dependencies.

use contract::task::{Create, MAX_DEPENDENCIES, MAX_TITLE_BYTES, Status, Task};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use uuid::Uuid;

use super::{into_task, name, status_of};
use policy::Scope;

use store::entity::{project, task, task_dependency};

use crate::{
    BuiltInTool, Context, Does, ToolError, arguments::check, confinement::Confinement,
    tools::workflows::TaskHooks,
};

/// Maximum length of the id or name of a task.
pub(super) const MAX_REFERENCE_BYTES: usize = 128;

impl BuiltInTool for Create {
    const TITLE: &'static str = "Create a task";
    const DESCRIPTION: &'static str = "Creates a task, pending, and gives it back with its task_id and the \
        name it got. Names are unique in a project; a taken one gets a number.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Task, ToolError> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let (title, name) = match (given(&input.title), given(&input.name)) {
            (Some(title), Some(name)) => (title, name),
            (Some(title), None) => (title.clone(), name::slug(&title)),
            (None, Some(name)) => (name.clone(), name),
            (None, None) => return Err(ToolError::Invalid("a task needs a title or a name".to_owned())),
        };
        super::check_title(&title)?;
        check::text("name", &name, MAX_TITLE_BYTES)?;
        let Placement { project, user, parent } = resolve_placement(context, &input).await?;
        let description = input.description.unwrap_or_default();
        super::check_description(&description)?;
        let acceptance_criteria = super::encode_criteria(&input.acceptance_criteria)?;
        let row = task::Model {
            id: Uuid::now_v7().to_string(),
            name,
            title,
            description,
            acceptance_criteria,
            status: Status::Pending.as_str().to_owned(),
            scope_key: name::scope_key(project.as_deref(), user.as_deref()),
            project_id: project,
            user_id: user,
            parent_task_id: parent,
            schedule_id: input.schedule_id.map(String::from),
            run_id: input.run_id.map(String::from),
            position: input.order.unwrap_or_default(),
            version: 1,
            created_at: context.now,
            updated_at: context.now,
        };
        let row = name::insert(&context.db, row).await?;
        insert_dependencies(context, &row, &input.depends_on).await?;
        TaskHooks::of(context).created(&row).await?;
        into_task(row)
    }
}

/// The project, user and parent task of a new task.
struct Placement {
    project: Option<String>,
    user: Option<String>,
    parent: Option<String>,
}

/// M106: fails unless the given parent task and project exist and belong together. Project and user that are
/// not given are inherited.
async fn resolve_placement(context: &Context<'_>, input: &Create) -> Result<Placement, ToolError> {
    // What the caller acts for, unless the call says more.
    let bounds = context.caller.bounds();
    let own_project = || bounds.as_ref().and_then(|bounds| bounds.project.clone());
    let mut project = input.project_id.as_ref().map(ToString::to_string).or_else(own_project);
    let own_user = || bounds.as_ref().map(|bounds| bounds.user.clone());
    let mut user = input.user_id.as_ref().map(ToString::to_string).or_else(own_user);
    let mut parent = None;
    if let Some(id) = &input.parent_task_id {
        let row = super::find(context, id).await?;
        if project.is_some() && project != row.project_id {
            let why = format!("the task {id} is not in the project {}", project.unwrap_or_default());
            return Err(ToolError::Invalid(why));
        }
        project = row.project_id;
        user = user.or(row.user_id);
        parent = Some(row.id);
    }
    if let Some(id) = &project {
        let found = project::Entity::find_by_id(id).one(&context.db).await?;
        let found = found.ok_or_else(|| ToolError::not_found("project", id))?;
        user = user.or(found.user_id);
    }
    Ok(Placement { project, user, parent })
}

/// Adds the dependencies of a new task. No task depends on it yet, so they cannot form a cycle.
async fn insert_dependencies(
    context: &Context<'_>,
    task: &task::Model,
    wanted: &[String],
) -> Result<(), ToolError> {
    if wanted.is_empty() {
        return Ok(());
    }
    for id in resolve_dependencies(context, &task.scope_key, wanted).await? {
        let row =
            task_dependency::Model { task_id: task.id.clone(), depends_on: id, created_at: context.now };
        let insert = task_dependency::Entity::insert(task_dependency::ActiveModel::from(row));
        insert.exec_without_returning(&context.db).await?;
    }
    Ok(())
}

/// Returns the ids of the referenced tasks, each once. The rows are locked, so that none is cancelled before
/// the dependency is visible.
async fn resolve_dependencies(
    context: &Context<'_>,
    scope: &str,
    wanted: &[String],
) -> Result<Vec<String>, ToolError> {
    check::count("dependencies", wanted.len(), MAX_DEPENDENCIES)?;
    for reference in wanted {
        check::non_blank("dependency", reference, MAX_REFERENCE_BYTES)?;
    }
    let texts = || wanted.iter().map(String::as_str);
    let referenced =
        Condition::any().add(task::Column::Id.is_in(texts())).add(task::Column::Name.is_in(texts()));
    let mut found = task::Entity::find()
        .filter(task::Column::ScopeKey.eq(scope))
        .filter(referenced)
        .order_by_asc(task::Column::Id)
        .lock_shared()
        .all(&context.db)
        .await?;
    if let Some(confinement) = Confinement::to_tasks(context) {
        found.retain(|row| confinement.includes_owner_of(row));
    }
    let mut ids = Vec::new();
    for reference in wanted {
        let by_id = found.iter().find(|row| row.id == *reference);
        let row = by_id.or_else(|| found.iter().find(|row| row.name == *reference));
        let row = row.ok_or_else(|| ToolError::not_found("task", reference))?;
        check_dependency_status(row)?;
        if !ids.contains(&row.id) {
            ids.push(row.id.clone());
        }
    }
    Ok(ids)
}

/// Fails with a conflict if a task has failed or was cancelled: no other task can wait for it then.
pub(super) fn check_dependency_status(task: &task::Model) -> Result<(), ToolError> {
    let status = status_of(task)?;
    if matches!(status, Status::Failed | Status::Canceled) {
        let why = format!("the task {} is {}; nothing can wait for it", task.name, status.as_str());
        return Err(ToolError::Conflict(why));
    }
    Ok(())
}
