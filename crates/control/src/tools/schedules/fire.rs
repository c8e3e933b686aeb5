//! `schedule.fire`: decides about the slots that are due and stores their runs.
//!
//! The next slot of a schedule is moved on by compare-and-set in the same transaction. Of several gateways
//! and orchestrators one does so; the others find nothing due.

use contract::schedule::{Fire, Fired, MAX_FIRED, MAX_RUNS_KEPT, RunState, SkipReason, Trigger};
use policy::Scope;
use sea_orm::{
    ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, LockBehavior, LockType},
};
use store::{
    clock,
    entity::{schedule, schedule_run},
};
use subjects::HandoffId;
use timing::{Plan, plan};

use super::{
    give_up::{GiveUp, open_runs},
    marks::{self, DueRuns},
    rows::{policies_of, timing_of},
    start::{Start, blank_run, fail, insert, start},
};
use crate::{BuiltInTool, Context, Does, ToolError};

const DEFAULT_RUNS: u64 = 50;
/// How many schedules one call decides about at most: slots that are skipped cost time as well.
const MAX_SCHEDULES: u64 = 200;
/// How many runs one call ends at most since they took too long.
const MAX_TIMED_OUT: u64 = 200;

impl BuiltInTool for Fire {
    const TITLE: &'static str = "Fire the schedules that are due";
    const DESCRIPTION: &'static str = "Decides about the slots of all schedules that are due, stores their \
        runs and queues their jobs. Gives the runs to be published and the handoffs to be cancelled. Each \
        slot is decided once, however many callers there are.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Fired, ToolError> {
        let limit = input.limit.unwrap_or(DEFAULT_RUNS).clamp(1, MAX_FIRED);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut firing = Firing {
            context,
            runs: DueRuns::new(limit),
            cancels: Vec::new(),
            jobs: 0,
            skipped: 0,
            has_more: false,
        };
        firing.end_overdue().await?;
        firing.take_manual().await?;
        firing.fire_due().await?;
        let next_at = schedule::Entity::find()
            .select_only()
            .column_as(schedule::Column::NextAt.min(), "next_at")
            .filter(schedule::Column::Enabled.eq(true))
            .into_tuple::<Option<i64>>()
            .one(&context.db)
            .await?;
        let Firing { runs, cancels, jobs, skipped, has_more, .. } = firing;
        let next_at = next_at.flatten().map(clock::text);
        Ok(Fired { runs: runs.runs, cancels, jobs, skipped, next_at, has_more })
    }
}

/// The progress of one call.
struct Firing<'c> {
    context: &'c Context<'c>,
    runs: DueRuns,
    cancels: Vec<HandoffId>,
    jobs: u64,
    skipped: u64,
    has_more: bool,
}

impl Firing<'_> {
    /// Ends runs that took too long.
    async fn end_overdue(&mut self) -> Result<(), ToolError> {
        let (db, now) = (&self.context.db, self.context.now);
        let overdue = schedule_run::Entity::find()
            .filter(schedule_run::Column::TimeoutAt.lte(now))
            .order_by_asc(schedule_run::Column::TimeoutAt)
            .limit(MAX_TIMED_OUT)
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
            .all(db)
            .await?;
        self.give_up(&overdue, RunState::TimedOut).await
    }

    /// Gives locked runs up. Their handoffs are to be cancelled.
    async fn give_up(&mut self, runs: &[schedule_run::Model], state: RunState) -> Result<(), ToolError> {
        let (context, by) = (self.context, self.context.author());
        let (leases, sandboxes) = (context.leases, context.sandboxes);
        let give_up = GiveUp { db: &context.db, leases, sandboxes, now: context.now, by: &by };
        for run in runs {
            self.cancels.extend(give_up.run(run, state).await?);
        }
        Ok(())
    }

    /// Takes the runs that people started.
    async fn take_manual(&mut self) -> Result<(), ToolError> {
        let started = schedule_run::Entity::find()
            .filter(schedule_run::Column::State.eq(RunState::Pending.as_str()))
            .filter(schedule_run::Column::ClaimedAt.is_null())
            .order_by_asc(schedule_run::Column::FiredAt)
            .limit(MAX_FIRED)
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
            .all(&self.context.db)
            .await?;
        for run in started {
            if self.runs.is_full() {
                self.has_more = true;
                break;
            }
            marks::claim(self.context, &run.id).await?;
            self.runs.add(self.context, run).await?;
        }
        Ok(())
    }

    /// Decides about due schedules, the longest due first.
    async fn fire_due(&mut self) -> Result<(), ToolError> {
        let due = schedule::Entity::find()
            .filter(schedule::Column::Enabled.eq(true))
            .filter(schedule::Column::NextAt.lte(self.context.now))
            .order_by_asc(schedule::Column::NextAt)
            .order_by_asc(schedule::Column::Id)
            .limit(MAX_SCHEDULES)
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
            .all(&self.context.db)
            .await?;
        self.has_more |= due.len() as u64 == MAX_SCHEDULES;
        for row in due {
            if self.runs.is_full() {
                self.has_more = true;
                break;
            }
            self.fire(row).await?;
        }
        Ok(())
    }

    async fn fire(&mut self, row: schedule::Model) -> Result<(), ToolError> {
        let (db, now) = (&self.context.db, self.context.now);
        let Some(next) = row.next_at else { return Ok(()) };
        let timing = match timing_of(&row) {
            Ok(timing) => timing,
            Err(error) => return self.suspend(&row, next, error.to_string()).await,
        };
        let open = open_runs(db, &row.id).await?;
        let room = self.runs.room(row.payload.len());
        let plan = plan(&timing, policies_of(&row)?, next, now, !open.is_empty(), room);
        let last_slot = plan.last_slot();
        let claimed = schedule::Entity::update_many()
            .col_expr(schedule::Column::NextAt, Expr::value(plan.next))
            .col_expr(schedule::Column::LastSlot, Expr::value(last_slot.or(row.last_slot)))
            .filter(schedule::Column::Id.eq(&row.id))
            .filter(schedule::Column::NextAt.eq(next))
            .exec(db)
            .await?;
        if claimed.rows_affected != 1 {
            return Ok(());
        }
        self.has_more |= plan.next.is_some_and(|next| next <= now);
        if plan.replaces {
            self.give_up(&open, RunState::Replaced).await?;
        }
        self.start_runs(&row, plan).await?;
        prune(&self.context.db, &row.id).await
    }

    async fn start_runs(&mut self, row: &schedule::Model, plan: Plan) -> Result<(), ToolError> {
        let (db, now) = (&self.context.db, self.context.now);
        for skipped in plan.skip {
            self.skipped = self.skipped.saturating_add(skipped.slots);
            let id = HandoffId::for_scheduled_run(&row.id, "skipped", skipped.last).to_string();
            let run = schedule_run::Model {
                skip_reason: Some(SkipReason::as_str(skipped.reason).to_owned()),
                first_slot: Some(skipped.first),
                slots: Some(i64::try_from(skipped.slots).unwrap_or(i64::MAX)),
                ended_at: Some(now),
                ..blank_run(row, id, Trigger::Slot, skipped.last, now)
            };
            insert(db, run).await?;
        }
        for slot in plan.fire {
            let due = Start { slot, trigger: Trigger::Slot, now, is_claimed: true };
            match start(db, row, due).await? {
                Some(run) if run.job_id.is_some() => self.jobs += 1,
                Some(run) if run.ended_at.is_none() => self.runs.add(self.context, run).await?,
                // Failed to start, or the slot had its run already.
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Suspends a schedule whose timing cannot be used any more, so that the others fire, and says why in its
    /// runs.
    async fn suspend(&self, row: &schedule::Model, slot: i64, why: String) -> Result<(), ToolError> {
        let (db, now) = (&self.context.db, self.context.now);
        schedule::Entity::update_many()
            .col_expr(schedule::Column::Enabled, Expr::value(false))
            .filter(schedule::Column::Id.eq(&row.id))
            .exec(db)
            .await?;
        let id = HandoffId::for_scheduled_run(&row.id, Trigger::Slot.as_str(), slot).to_string();
        let run = blank_run(row, id, Trigger::Slot, slot, now);
        if insert(db, run.clone()).await? {
            fail(db, run, now, "invalid_timing", why).await?;
        }
        Ok(())
    }
}

/// Deletes the oldest ended runs of a schedule, but none whose cancel is due.
pub(super) async fn prune(db: &DatabaseExecutor<'_>, schedule: &str) -> Result<(), ToolError> {
    let of_schedule = schedule_run::Column::ScheduleId.eq(schedule);
    let newest_deleted = schedule_run::Entity::find()
        .select_only()
        .column(schedule_run::Column::Slot)
        .filter(of_schedule.clone())
        .order_by_desc(schedule_run::Column::Slot)
        .offset(MAX_RUNS_KEPT)
        .limit(1)
        .into_tuple::<i64>()
        .one(db)
        .await?;
    if let Some(slot) = newest_deleted {
        schedule_run::Entity::delete_many()
            .filter(of_schedule)
            .filter(schedule_run::Column::Slot.lte(slot))
            .filter(schedule_run::Column::EndedAt.is_not_null())
            .filter(schedule_run::Column::CancelDueAt.is_null())
            .exec(db)
            .await?;
    }
    Ok(())
}
