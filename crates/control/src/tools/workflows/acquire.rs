//! `workflow.lease.acquire`: a runner takes a workflow, and gets what it needs to work on it.

use contract::{
    preference::{Entry, resolve},
    task::Status as TaskStatus,
    workflow::{Acquire, Acquired, MAX_TTL_SECONDS, MIN_TTL_SECONDS, Outcome, Status},
};
use policy::{Scope, ScopedId};
use sea_orm::{ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use store::{
    clock,
    entity::{preference, task, workflow, workflow_checkpoint},
};

use super::{WorkflowBook, events, refusal, rows, view};
use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::check,
    task_rows::{self, graph},
    tools::{
        artifacts,
        preferences::{ScopeSet, parse_entry},
    },
};

const MAX_HOLDER_BYTES: usize = 128;
const MAX_ARTIFACTS: u64 = 200;
const MAX_PREFERENCES: u64 = 5_000;
const MAX_PREFERENCES_BYTES: usize = 64 * 1024;
/// State, steps and description of a task, with the rest.
const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;
const SECOND_US: i64 = 1_000_000;

impl BuiltInTool for Acquire {
    const TITLE: &'static str = "Take a workflow";
    const DESCRIPTION: &'static str = "Takes a workflow for a runner. Gives the epoch that every later call \
        names, with the task, its steps, policy, preferences, files and state. Refused with a reason: \
        old_run, not_active, held or not_found.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = MAX_RESULT_BYTES;

    async fn run(context: &Context<'_>, input: Self) -> Result<Acquired, ToolError> {
        check::non_blank("holder", &input.holder, MAX_HOLDER_BYTES)?;
        let lasts = ttl(input.ttl_seconds)?;
        let book = WorkflowBook::of(context);
        let task = task::Entity::find_by_id(input.task_id.as_str()).lock_exclusive().one(&context.db).await?;
        let task = task.ok_or_else(|| refusal::not_found(input.task_id.as_str()))?;
        let row = rows::lock(&context.db, &task.id).await?;
        rows::attribute(context, &row, None);
        check_free(&row, &input, context.now)?;
        let lost = (row.status == Status::Running.as_str()).then(|| row.holder.clone().unwrap_or_default());
        let (before, epoch) = (row.epoch, row.epoch + 1);
        let mut change = workflow::ActiveModel::from(row);
        change.status = Set(Status::Running.as_str().to_owned());
        change.epoch = Set(epoch);
        change.holder = Set(Some(input.holder.clone()));
        change.lease_expires_at = Set(Some(context.now.saturating_add(lasts)));
        change.updated_at = Set(context.now);
        let row = change.update(&context.db).await?;
        if let Some(holder) = lost {
            let detail = Some(format!("held by {holder}"));
            let event = events::of(events::RUNNER, Outcome::LeaseLost, detail);
            events::add(&context.db, (&row.task_id, before), [event], context.now).await?;
        }
        let event = events::of(events::RUNNER, Outcome::Started, Some(format!("held by {}", input.holder)));
        events::add(&context.db, (&row.task_id, epoch), [event], context.now).await?;
        let task = book.set_task(task, TaskStatus::Running).await?;
        gather(context, row, task).await
    }
}

/// Returns how long a lease lasts, in microseconds.
pub(super) fn ttl(seconds: u64) -> Result<i64, ToolError> {
    if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&seconds) {
        return Err(ToolError::Invalid(format!(
            "`ttl_seconds` must be {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS}"
        )));
    }
    Ok(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(SECOND_US))
}

/// Fails with what the runner is to do with its message, unless the workflow can be taken.
fn check_free(row: &workflow::Model, wanted: &Acquire, now: i64) -> Result<(), ToolError> {
    if wanted.run != row.run {
        return Err(refusal::old_run(&row.task_id, wanted.run, row.run));
    }
    let status = rows::status_of(row)?;
    if !matches!(status, Status::Queued | Status::Running) || !row.sent {
        return Err(refusal::not_active(&row.task_id, &row.status));
    }
    let left = row.lease_expires_at.unwrap_or_default().saturating_sub(now);
    if status == Status::Running && left > 0 {
        return Err(refusal::held(&row.task_id, row.holder.as_deref().unwrap_or("a runner"), left));
    }
    Ok(())
}

/// Reads what a runner needs.
async fn gather(
    context: &Context<'_>,
    row: workflow::Model,
    task: task::Model,
) -> Result<Acquired, ToolError> {
    let db = &context.db;
    let dependencies = graph::dependencies(db, &task.id).await?;
    let stored = workflow_checkpoint::Entity::find_by_id(&task.id).one(db).await?;
    Ok(Acquired {
        epoch: row.epoch,
        expires_at: clock::text(row.lease_expires_at.unwrap_or_default()),
        dependencies: dependencies.into_iter().map(task_rows::into_summary).collect::<Result<_, _>>()?,
        // The gateway writes this JSON; if it was damaged, the steps are planned.
        steps: row.steps.as_deref().and_then(|steps| serde_json::from_str(steps).ok()).unwrap_or_default(),
        preferences_effective: preferences(context, &row).await?,
        artifacts: artifacts::list_first(db, &task.id, MAX_ARTIFACTS).await?,
        state: stored.and_then(|stored| serde_json::from_str(&stored.state).ok()),
        input: row.input.clone(),
        interrupt_id: row.interrupt_id.clone().filter(|_| row.input.is_some()),
        task: task_rows::into_task(task)?,
        workflow: view::describe(db, row).await?,
    })
}

async fn preferences(context: &Context<'_>, row: &workflow::Model) -> Result<Vec<Entry>, ToolError> {
    let scopes = ScopeSet {
        user: Some(row.user_id.clone()),
        groups: Vec::new(),
        project: row.project_id.clone(),
        task: Some(row.task_id.clone()),
    };
    let entries = preference::Entity::find()
        .filter(preference::Column::Deleted.eq(false))
        .filter(scopes.condition())
        .limit(MAX_PREFERENCES)
        .all(&context.db)
        .await?;
    let effective = resolve(entries.into_iter().map(parse_entry)).effective.into_values();
    Ok(first_that_fit(effective, MAX_PREFERENCES_BYTES))
}

/// Returns the first entries, as long as all of them fit as JSON. They become part of the state, which has a
/// limit of its own.
fn first_that_fit(entries: impl IntoIterator<Item = Entry>, max_bytes: usize) -> Vec<Entry> {
    let mut left = max_bytes;
    let mut fits = |entry: &Entry| {
        let size = subjects::encode_json_text(entry).len();
        left = left.saturating_sub(size);
        left > 0
    };
    entries.into_iter().take_while(|entry| fits(entry)).collect()
}
