use schemars::JsonSchema;
use sea_orm::{ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{
    Brief, Status,
    create::{DEPENDENCIES, REFERENCE, can_be_waited_for},
    graph::{self, Along},
};
use crate::{
    policy::{Scope, ScopedId},
    store::entity::{task, task_dependency},
    tools::{
        Context, Does, OwnTool, ToolError, check,
        page::{Page, Piece},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edge {
    task_id: ScopeId,
    /// The id or the name of the task to wait for, in the same project (or of the same user, without a project).
    #[schemars(length(max = REFERENCE))]
    depends_on: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Changed {
    task_id: String,
    depends_on: String,
    /// False when it was so before.
    changed: bool,
}

pub(super) struct Add;

impl OwnTool for Add {
    const NAME: &'static str = "db.task.dependency.add";
    const TITLE: &'static str = "Make a task wait for another";
    const DESCRIPTION: &'static str = "Makes a task wait for another one: it becomes ready or running only when that one \
        is completed, and is canceled with it. Circles are refused.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    type Input = Edge;
    type Output = Changed;

    async fn run(context: &Context<'_>, input: Edge) -> Result<Changed, ToolError> {
        let task = super::find(context, &input.task_id).await?;
        let other = neighbour(context, &task, &input.depends_on).await?;
        // Two who add at once could close a circle together: each holds all that the other would have to see.
        let held = graph::hold(context, &[task.id.clone(), other.id.clone()], Along::Dependencies).await?;
        let (Some(task), Some(other)) = (held.get(&task.id), held.get(&other.id)) else {
            return Err(ToolError::not_found("task", input.task_id));
        };
        let waits = graph::reach(context, std::slice::from_ref(&other.id), Along::Dependencies).await?;
        if waits.contains(&task.id) {
            let why = format!("{} cannot wait for {}: that one waits for it", task.name, other.name);
            return Err(ToolError::Invalid(why));
        }
        has_not_begun(task)?;
        can_be_waited_for(other)?;
        let own = task_dependency::Entity::find().filter(task_dependency::Column::TaskId.eq(&task.id));
        let count = usize::try_from(own.count(&context.db).await?).unwrap_or(usize::MAX);
        check::count("dependencies", count.saturating_add(1), DEPENDENCIES)?;
        let row = task_dependency::Model {
            task_id: task.id.clone(),
            depends_on: other.id.clone(),
            created_at: context.now,
        };
        let insert = task_dependency::Entity::insert(task_dependency::ActiveModel::from(row))
            .on_conflict_do_nothing_on([task_dependency::Column::TaskId, task_dependency::Column::DependsOn]);
        let changed = check::is_in(&insert.exec_without_returning(&context.db).await?);
        Ok(Changed { task_id: task.id.clone(), depends_on: other.id.clone(), changed })
    }
}

/// What runs is no longer told to wait.
fn has_not_begun(task: &task::Model) -> Result<(), ToolError> {
    let status = Status::of(task)?;
    if matches!(status, Status::Pending | Status::Blocked) {
        return Ok(());
    }
    let why = format!(
        "the task {} is {}; only a pending or blocked one can be made to wait",
        task.name,
        status.as_str()
    );
    Err(ToolError::Conflict(why))
}

/// A task in the same scope. Others are not told from ones that do not exist.
async fn neighbour(
    context: &Context<'_>,
    task: &task::Model,
    reference: &str,
) -> Result<task::Model, ToolError> {
    check::words("depends_on", reference, REFERENCE)?;
    let meant = Condition::any().add(task::Column::Id.eq(reference)).add(task::Column::Name.eq(reference));
    let found = task::Entity::find().filter(task::Column::ScopeKey.eq(&task.scope_key)).filter(meant);
    let found = found.all(&context.db).await?;
    let by_id = found.iter().position(|row| row.id == reference).unwrap_or(0);
    found.into_iter().nth(by_id).ok_or_else(|| ToolError::not_found("task", reference))
}

pub(super) struct Remove;

impl OwnTool for Remove {
    const NAME: &'static str = "db.task.dependency.remove";
    const TITLE: &'static str = "Let a task no longer wait for another";
    const DESCRIPTION: &'static str =
        "Takes a dependency away. `changed` is false when there was none; that is no error.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    type Input = Edge;
    type Output = Changed;

    async fn run(context: &Context<'_>, input: Edge) -> Result<Changed, ToolError> {
        let task = super::find(context, &input.task_id).await?;
        let other = neighbour(context, &task, &input.depends_on).await?;
        let edge = (task.id.clone(), other.id.clone());
        let removed = task_dependency::Entity::delete_by_id(edge).exec(&context.db).await?;
        Ok(Changed { task_id: task.id, depends_on: other.id, changed: removed.rows_affected > 0 })
    }
}

pub(super) struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    task_id: ScopeId,
    limit: Option<u64>,
    cursor: Option<String>,
}

impl OwnTool for List {
    const NAME: &'static str = "db.task.dependency.list";
    const TITLE: &'static str = "List what a task waits for";
    const DESCRIPTION: &'static str = "Lists the tasks that a task depends on directly, with their statuses.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    type Input = ListInput;
    type Output = Piece<Brief>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Piece<Brief>, ToolError> {
        let page = Page::of(input.limit, input.cursor.as_deref())?;
        let task = super::find(context, &input.task_id).await?;
        let found = graph::dependencies(context, &task.id).await?;
        Ok(page.of_all(found.into_iter().map(Brief::try_from).collect::<Result<_, _>>()?))
    }
}
