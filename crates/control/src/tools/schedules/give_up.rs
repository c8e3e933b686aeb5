//! Ends runs that are replaced or took too long, and keeps their cancels due.
//!
//! A published cancel may reach no worker. So the leases of a handoff are revoked when its run is abandoned,
//! and orchestrators publish the cancel again until the handoff has its answer.

use contract::schedule::{MAX_UNSENT, RunState};
use sea_orm::{
    ColumnTrait, DatabaseExecutor, EntityTrait, ExprTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, LockBehavior, LockType},
};
use store::entity::{job, schedule_run};
use subjects::{HandoffId, streams::ANSWER_RETENTION};

use super::rows::{run_id_of, state_of_job};
use crate::{Context, JobBook, LeaseIssuer, Sandboxes, ToolError, resend, tools::jobs::Status};

/// Gives runs up within a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct GiveUp<'w> {
    pub(super) db: &'w DatabaseExecutor<'w>,
    pub(super) leases: &'w LeaseIssuer,
    pub(super) sandboxes: &'w Sandboxes,
    /// Microseconds since 1970.
    pub(super) now: i64,
    pub(super) by: &'w str,
}

impl GiveUp<'_> {
    /// Ends an open run without an answer, whose row has to be locked. Its job is cancelled, or its handoff
    /// is to be: its leases are revoked, and the jobs that were begun under them are cancelled. Returns the
    /// handoff.
    pub(super) async fn run(
        &self,
        row: &schedule_run::Model,
        state: RunState,
    ) -> Result<Option<HandoffId>, ToolError> {
        let Self { db, leases, sandboxes, now, by } = *self;
        if end_with_job(db, row).await? {
            return Ok(None);
        }
        end(db, row, state, now).await?;
        let Some(job) = &row.job_id else {
            leases.revoke_of_handoff(db, &row.id, now, by).await?;
            JobBook::new(db, sandboxes, now).cancel_of_handoff(&row.id, by).await?;
            return run_id_of(row).map(Some);
        };
        let open = [Status::Queued, Status::Running].map(Status::as_str);
        job::Entity::update_many()
            .col_expr(job::Column::Status, Expr::value(Status::Canceled.as_str()))
            .col_expr(job::Column::Version, Expr::col(job::Column::Version).add(1))
            .col_expr(job::Column::UpdatedAt, Expr::value(now))
            .filter(job::Column::Id.eq(job))
            .filter(job::Column::Status.is_in(open))
            .exec(db)
            .await?;
        Ok(None)
    }
}

/// Locks and returns the open runs of a schedule. A run whose job has ended is ended with it.
pub(super) async fn open_runs(
    db: &DatabaseExecutor<'_>,
    schedule: &str,
) -> Result<Vec<schedule_run::Model>, ToolError> {
    let open = [RunState::Pending, RunState::Running].map(RunState::as_str);
    let rows = schedule_run::Entity::find()
        .filter(schedule_run::Column::ScheduleId.eq(schedule))
        .filter(schedule_run::Column::State.is_in(open))
        .lock_exclusive()
        .all(db)
        .await?;
    let mut still_open = Vec::new();
    for row in rows {
        if !end_with_job(db, &row).await? {
            still_open.push(row);
        }
    }
    Ok(still_open)
}

/// Ends a run whose job has ended. Returns whether it did.
async fn end_with_job(db: &DatabaseExecutor<'_>, row: &schedule_run::Model) -> Result<bool, ToolError> {
    let Some(id) = &row.job_id else { return Ok(false) };
    let Some(job) = job::Entity::find_by_id(id).one(db).await? else { return Ok(false) };
    let Some(state) = state_of_job(&job)? else { return Ok(false) };
    end(db, row, state, job.updated_at).await?;
    Ok(true)
}

async fn end(
    db: &DatabaseExecutor<'_>,
    row: &schedule_run::Model,
    state: RunState,
    now: i64,
) -> Result<(), ToolError> {
    let is_handoff = row.job_id.is_none();
    schedule_run::Entity::update_many()
        .col_expr(schedule_run::Column::State, Expr::value(state.as_str()))
        .col_expr(schedule_run::Column::EndedAt, Expr::value(now))
        .col_expr(schedule_run::Column::TimeoutAt, Expr::value(None::<i64>))
        .col_expr(schedule_run::Column::Payload, Expr::value(None::<String>))
        .col_expr(schedule_run::Column::CancelDueAt, Expr::value(is_handoff.then_some(now)))
        .filter(schedule_run::Column::Id.eq(&row.id))
        .exec(db)
        .await?;
    Ok(())
}

/// Returns the handoffs whose cancels are due, the longest due first, and puts the cancels off. One is due no
/// more when its run was given up so long ago that an answer is not kept any more.
pub(super) async fn take_due_cancels(context: &Context<'_>, limit: u64) -> Result<Vec<HandoffId>, ToolError> {
    let (db, now) = (&context.db, context.now);
    let retention = i64::try_from(ANSWER_RETENTION.as_micros()).unwrap_or(i64::MAX);
    let due = schedule_run::Entity::find()
        .filter(schedule_run::Column::CancelDueAt.lte(now))
        .order_by_asc(schedule_run::Column::CancelDueAt)
        .limit(limit.clamp(1, MAX_UNSENT))
        .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
        .all(db)
        .await?;
    let mut cancels = Vec::with_capacity(due.len());
    for row in due {
        let age = now.saturating_sub(row.ended_at.unwrap_or(row.fired_at));
        let is_of_use = age < retention;
        let next = is_of_use.then(|| now.saturating_add(resend::cancel_pause_after(age)));
        schedule_run::Entity::update_many()
            .col_expr(schedule_run::Column::CancelDueAt, Expr::value(next))
            .filter(schedule_run::Column::Id.eq(&row.id))
            .exec(db)
            .await?;
        if is_of_use {
            cancels.push(run_id_of(&row)?);
        }
    }
    Ok(cancels)
}
