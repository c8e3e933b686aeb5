use schemars::JsonSchema;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use subjects::ScopeId;
use uuid::Uuid;

use super::{CRITERIA, DESCRIPTION, Status, TITLE, Task, name};
use crate::{
    policy::Scope,
    store::entity::{project, task, task_dependency},
    tools::{Context, Does, OwnTool, ToolError, check},
};

pub(super) const DEPENDENCIES: usize = 100;
/// No id and no name of a task is longer.
pub(super) const REFERENCE: usize = 128;

pub(super) struct Create;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Input {
    /// Short, lowercase, with hyphens, as people would say it: `deploy-docs`. Made of the title when not given; one that
    /// is taken gets a number.
    #[schemars(length(max = TITLE))]
    name: Option<String>,
    /// One line. The name when not given.
    #[schemars(length(max = TITLE))]
    title: Option<String>,
    #[schemars(length(max = DESCRIPTION))]
    description: Option<String>,
    /// Each can be answered with yes or no.
    #[schemars(length(max = CRITERIA))]
    acceptance_criteria: Vec<String>,
    /// Where it stands among its neighbours; lower comes first.
    order: Option<i64>,
    /// Ids or names of tasks in the same project (or of the same user, without a project) that must be completed first.
    #[schemars(length(max = DEPENDENCIES))]
    depends_on: Vec<String>,
    project_id: Option<ScopeId>,
    user_id: Option<ScopeId>,
    /// The task that this is a part of. Project and user are taken from it when not given.
    parent_task_id: Option<ScopeId>,
    schedule_id: Option<ScopeId>,
    run_id: Option<ScopeId>,
}

impl OwnTool for Create {
    const NAME: &'static str = "db.task.create";
    const TITLE: &'static str = "Create a task";
    const DESCRIPTION: &'static str = "Creates a task, pending, and gives it back with its task_id and the name it got. \
        Names are unique in a project; a taken one gets a number.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    type Input = Input;
    type Output = Task;

    async fn run(context: &Context<'_>, input: Input) -> Result<Task, ToolError> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let (title, name) = match (given(&input.title), given(&input.name)) {
            (Some(title), Some(name)) => (title, name),
            (Some(title), None) => (title.clone(), name::slug(&title)),
            (None, Some(name)) => (name.clone(), name),
            (None, None) => return Err(ToolError::Invalid("a task needs a title or a name".to_owned())),
        };
        super::check_title(&title)?;
        check::text("name", &name, TITLE)?;
        let Place { project, user, parent } = place(context, &input).await?;
        let description = input.description.unwrap_or_default();
        super::check_description(&description)?;
        let acceptance_criteria = super::criteria(&input.acceptance_criteria)?;
        let row = task::Model {
            id: Uuid::now_v7().to_string(),
            name,
            title,
            description,
            acceptance_criteria,
            status: Status::Pending.as_str().to_owned(),
            scope_key: name::scope(project.as_deref(), user.as_deref()),
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
        let row = name::insert(context, row).await?;
        depend(context, &row, &input.depends_on).await?;
        row.try_into()
    }
}

/// To whom a new task belongs.
struct Place {
    project: Option<String>,
    user: Option<String>,
    parent: Option<String>,
}

/// M106: what is named must be there and belong together.
async fn place(context: &Context<'_>, input: &Input) -> Result<Place, ToolError> {
    let mut project = input.project_id.as_ref().map(ToString::to_string);
    let mut user = input.user_id.as_ref().map(ToString::to_string);
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
    Ok(Place { project, user, parent })
}

/// A new task has nobody who waits for it, so there can be no circle yet.
async fn depend(context: &Context<'_>, task: &task::Model, wanted: &[String]) -> Result<(), ToolError> {
    if wanted.is_empty() {
        return Ok(());
    }
    for id in resolve(context, &task.scope_key, wanted).await? {
        let row =
            task_dependency::Model { task_id: task.id.clone(), depends_on: id, created_at: context.now };
        let insert = task_dependency::Entity::insert(task_dependency::ActiveModel::from(row));
        insert.exec_without_returning(&context.db).await?;
    }
    Ok(())
}

/// The tasks that are meant, each once. They are held, so that none is canceled before the dependency is there to see.
async fn resolve(context: &Context<'_>, scope: &str, wanted: &[String]) -> Result<Vec<String>, ToolError> {
    check::count("dependencies", wanted.len(), DEPENDENCIES)?;
    for reference in wanted {
        check::words("dependency", reference, REFERENCE)?;
    }
    let texts = || wanted.iter().map(String::as_str);
    let meant = Condition::any().add(task::Column::Id.is_in(texts())).add(task::Column::Name.is_in(texts()));
    let found = task::Entity::find()
        .filter(task::Column::ScopeKey.eq(scope))
        .filter(meant)
        .order_by_asc(task::Column::Id)
        .lock_shared()
        .all(&context.db)
        .await?;
    let mut ids = Vec::new();
    for reference in wanted {
        let by_id = found.iter().find(|row| row.id == *reference);
        let row = by_id.or_else(|| found.iter().find(|row| row.name == *reference));
        let row = row.ok_or_else(|| ToolError::not_found("task", reference))?;
        can_be_waited_for(row)?;
        if !ids.contains(&row.id) {
            ids.push(row.id.clone());
        }
    }
    Ok(ids)
}

pub(super) fn can_be_waited_for(task: &task::Model) -> Result<(), ToolError> {
    let status = Status::of(task)?;
    if matches!(status, Status::Failed | Status::Canceled) {
        let why = format!("the task {} is {}; nothing can wait for it", task.name, status.as_str());
        return Err(ToolError::Conflict(why));
    }
    Ok(())
}
