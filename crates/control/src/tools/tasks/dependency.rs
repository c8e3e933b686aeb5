//! `db.task.dependency.*`: which tasks a task waits for.

use contract::{
    Page,
    task::{MAX_DEPENDENCIES, Status, TaskSummary},
    tool,
};
use schemars::JsonSchema;
use sea_orm::{ColumnTrait, Condition, EntityTrait, PaginatorTrait, QueryFilter};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{
    create::{MAX_REFERENCE_BYTES, check_dependency_status},
    into_summary, status_of,
};
use policy::{Scope, ScopedId};

use store::entity::{task, task_dependency};

use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::check,
    confinement::Confinement,
    queries::page::PageRequest,
    task_rows::{
        self,
        graph::{self, Direction},
    },
    tools::workflows::TaskHooks,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edge {
    task_id: ScopeId,
    /// The id or the name of the task to wait for, in the same project (or of the same user, without a
    /// project).
    #[schemars(length(max = MAX_REFERENCE_BYTES))]
    depends_on: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Changed {
    task_id: String,
    depends_on: String,
    /// False when nothing had to be changed.
    changed: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Add(Edge);

tool!("db.task.dependency.add": Add => Changed);

impl BuiltInTool for Add {
    const TITLE: &'static str = "Make a task wait for another";
    const DESCRIPTION: &'static str = "Makes a task wait for another one: it becomes ready or running only \
        when that one is completed, and is cancelled with it. Circles are refused.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, Self(input): Self) -> Result<Changed, ToolError> {
        let task = super::find(context, &input.task_id).await?;
        let other = find_in_same_scope(context, &task, &input.depends_on).await?;
        // Two concurrent calls could form a cycle together, so each locks all rows that the other would have
        // to read.
        let locked =
            graph::lock_reachable(&context.db, &[task.id.clone(), other.id.clone()], Direction::Dependencies)
                .await?;
        let (Some(task), Some(other)) = (locked.get(&task.id), locked.get(&other.id)) else {
            return Err(ToolError::not_found("task", input.task_id));
        };
        let waits_for =
            graph::reachable(&context.db, std::slice::from_ref(&other.id), Direction::Dependencies).await?;
        if waits_for.contains(&task.id) {
            let why = format!("{} cannot wait for {}: that one waits for it", task.name, other.name);
            return Err(ToolError::Invalid(why));
        }
        check_not_started(task)?;
        TaskHooks::of(context).check_may_wait(task).await?;
        check_dependency_status(other)?;
        let existing = task_dependency::Entity::find().filter(task_dependency::Column::TaskId.eq(&task.id));
        let count = usize::try_from(existing.count(&context.db).await?).unwrap_or(usize::MAX);
        check::count("dependencies", count.saturating_add(1), MAX_DEPENDENCIES)?;
        let row = task_dependency::Model {
            task_id: task.id.clone(),
            depends_on: other.id.clone(),
            created_at: context.now,
        };
        let insert = task_dependency::Entity::insert(task_dependency::ActiveModel::from(row))
            .on_conflict_do_nothing_on([task_dependency::Column::TaskId, task_dependency::Column::DependsOn]);
        let changed = check::was_inserted(&insert.exec_without_returning(&context.db).await?);
        Ok(Changed { task_id: task.id.clone(), depends_on: other.id.clone(), changed })
    }
}

/// Fails with a conflict unless the task is pending or blocked: a task that has started cannot be made to
/// wait.
fn check_not_started(task: &task::Model) -> Result<(), ToolError> {
    let status = status_of(task)?;
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

/// Finds a task in the scope of another task, by id or name. A task in another scope is reported as not
/// found.
async fn find_in_same_scope(
    context: &Context<'_>,
    task: &task::Model,
    reference: &str,
) -> Result<task::Model, ToolError> {
    check::non_blank("depends_on", reference, MAX_REFERENCE_BYTES)?;
    let referenced =
        Condition::any().add(task::Column::Id.eq(reference)).add(task::Column::Name.eq(reference));
    let found = task::Entity::find().filter(task::Column::ScopeKey.eq(&task.scope_key)).filter(referenced);
    let mut found = found.all(&context.db).await?;
    if let Some(confinement) = Confinement::to_tasks(context) {
        found.retain(|row| confinement.includes_task(row));
    }
    let by_id = found.iter().position(|row| row.id == reference).unwrap_or(0);
    found.into_iter().nth(by_id).ok_or_else(|| ToolError::not_found("task", reference))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Remove(Edge);

tool!("db.task.dependency.remove": Remove => Changed);

impl BuiltInTool for Remove {
    const TITLE: &'static str = "Let a task no longer wait for another";
    const DESCRIPTION: &'static str =
        "Takes a dependency away. `changed` is false when there was none; that is no error.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, Self(input): Self) -> Result<Changed, ToolError> {
        let task = super::find(context, &input.task_id).await?;
        let other = find_in_same_scope(context, &task, &input.depends_on).await?;
        // Its workflow may begin, so it is locked with what it waits for.
        task_rows::lock_with_neighbours(&context.db, &task.id, Direction::Dependencies).await?;
        let edge = (task.id.clone(), other.id.clone());
        let removed = task_dependency::Entity::delete_by_id(edge).exec(&context.db).await?;
        TaskHooks::of(context).dependency_removed(&task.id).await?;
        Ok(Changed { task_id: task.id, depends_on: other.id, changed: removed.rows_affected > 0 })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    task_id: ScopeId,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("db.task.dependency.list": List => Page<TaskSummary>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List what a task waits for";
    const DESCRIPTION: &'static str = "Lists the tasks that a task depends on directly, with their statuses.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<TaskSummary>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let task = super::find(context, &input.task_id).await?;
        let mut found = graph::dependencies(&context.db, &task.id).await?;
        if let Some(confinement) = Confinement::to_tasks(context) {
            // An agent that works on one task sees what that task waits for.
            found.retain(|row| confinement.includes_owner_of(row));
        }
        Ok(request.paginate(found.into_iter().map(into_summary).collect::<Result<_, _>>()?))
    }
}
