//! `schedule.run.sent`, `unsent` and `end`: what orchestrators have published, and how runs end.

use contract::schedule::{
    DueRun, EndRun, EndedRun, ListUnsent, MAX_MARKED, MAX_TEXT_BYTES, MAX_UNSENT, ManagerPayload, MarkSent,
    MarkedSent, RunOutcome, RunState, Unsent,
};
use policy::{AgentKind, Scope};
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, ExprTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, LockBehavior, LockType},
};
use store::{clock, entity::schedule_run};
use subjects::{HandoffId, ScopeId, Timestamp};

use super::{give_up::take_due_cancels, rows::run_id_of, start::fail};
use crate::{BuiltInTool, Context, Does, JobBook, NewLease, ToolError, arguments::check, resend};
use contract::lease::Issue;

/// The payloads of one result together: it contains them three times, and has 1 MiB at most by default.
const MAX_RESULT_BYTES: usize = 64 * 1024;
/// Longest code of a failure that is kept.
const MAX_CODE_BYTES: usize = 64;

/// Runs to be published, no more than fit into one result.
#[derive(Debug)]
pub(super) struct DueRuns {
    pub(super) runs: Vec<DueRun>,
    limit: usize,
    bytes: usize,
}

impl DueRuns {
    pub(super) fn new(limit: usize) -> Self {
        Self { runs: Vec::new(), limit, bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.runs.len() >= self.limit || self.bytes >= MAX_RESULT_BYTES
    }

    /// Returns how many runs with a payload of this size may be added; at least one unless it is full.
    pub(super) fn room(&self, payload_bytes: usize) -> usize {
        if self.is_full() {
            return 0;
        }
        let by_size = (MAX_RESULT_BYTES - self.bytes).div_ceil(payload_bytes.max(1));
        (self.limit - self.runs.len()).min(by_size)
    }

    /// Adds a run with a lease. A run for which no lease is issued fails, unless it was published before and
    /// may be worked on.
    pub(super) async fn add(
        &mut self,
        context: &Context<'_>,
        run: schedule_run::Model,
    ) -> Result<(), ToolError> {
        self.bytes += run.payload.as_ref().map_or(0, String::len);
        match due_run(context, &run).await {
            Ok(due) => self.runs.push(due),
            Err(ToolError::Store(error)) => return Err(ToolError::Store(error)),
            Err(_) if run.sent_at.is_some() => {}
            Err(error) => {
                fail(&context.db, run, context.now, error.code(), error.to_string()).await?;
            }
        }
        Ok(())
    }
}

/// Composes what an orchestrator publishes, with a lease.
async fn due_run(context: &Context<'_>, run: &schedule_run::Model) -> Result<DueRun, ToolError> {
    let invalid = |what: &str| ToolError::Invalid(format!("the run has an invalid {what}"));
    let scope_id = |text: &str| text.parse::<ScopeId>().map_err(|_| invalid("id"));
    let time = |us: i64| Timestamp::new(clock::from_micros(us)).map_err(|_| invalid("time"));
    let handoff_id = run_id_of(run)?;
    let payload = run.payload.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let payload = payload.and_then(ManagerPayload::of).ok_or_else(|| invalid("payload"))?;
    let user_id = scope_id(&run.user_id)?;
    let project_id = run.project_id.as_deref().map(scope_id).transpose()?;
    let lease = Issue {
        project_id: project_id.clone(),
        handoff_id: Some(handoff_id.into()),
        ..Issue::new(AgentKind::ProjectManager, Some(user_id.clone()))
    };
    let new = NewLease { lease, parent_id: None, issued_by: context.author() };
    let issued = context.leases.issue_for_handoff(&context.db, new).await?;
    Ok(DueRun {
        handoff_id,
        schedule_id: scope_id(&run.schedule_id)?,
        user_id,
        project_id,
        slot: time(run.slot)?,
        fired_at: time(run.fired_at)?,
        deadline: time(run.deadline_at)?,
        payload,
        sent_at: run.sent_at.map(time).transpose()?,
        lease: issued.lease,
    })
}

/// Records that an orchestrator is given a run to publish it.
pub(super) async fn claim(context: &Context<'_>, id: &str) -> Result<(), ToolError> {
    schedule_run::Entity::update_many()
        .col_expr(schedule_run::Column::ClaimedAt, Expr::value(context.now))
        .filter(schedule_run::Column::Id.eq(id))
        .exec(&context.db)
        .await?;
    Ok(())
}

impl BuiltInTool for MarkSent {
    const TITLE: &'static str = "Mark runs of schedules as sent";
    const DESCRIPTION: &'static str = "Records that the handoffs of runs were published. Gives those that \
        are to be cancelled, since their runs were given up meanwhile.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<MarkedSent, ToolError> {
        let (db, now) = (&context.db, context.now);
        check::count("handoffs", input.handoff_ids.len(), MAX_MARKED)?;
        let sent: Vec<String> = input.handoff_ids.iter().map(HandoffId::to_string).collect();
        if sent.is_empty() {
            return Ok(MarkedSent { marked: 0, cancels: Vec::new() });
        }
        let given_up = [RunState::Replaced, RunState::TimedOut].map(RunState::as_str);
        let is_to_be_marked = Condition::any()
            .add(schedule_run::Column::SentAt.is_null())
            .add(schedule_run::Column::State.eq(RunState::Running.as_str()))
            .add(schedule_run::Column::State.is_in(given_up));
        let found = schedule_run::Entity::find()
            .filter(schedule_run::Column::Id.is_in(sent))
            .filter(is_to_be_marked)
            .order_by_asc(schedule_run::Column::Id)
            .lock_exclusive()
            .all(db)
            .await?;
        let marked = found.iter().filter(|run| run.sent_at.is_none()).count() as u64;
        let mut cancels = Vec::new();
        for run in &found {
            // The payload stays until the run ends: its handoff may have to be published again.
            let mut update =
                schedule_run::Entity::update_many().col_expr(schedule_run::Column::SentAt, Expr::value(now));
            if run.state == RunState::Pending.as_str() {
                let running = RunState::Running.as_str();
                update = update.col_expr(schedule_run::Column::State, Expr::value(running));
            } else if given_up.contains(&run.state.as_str()) {
                // It may have been published after the cancel.
                update = update.col_expr(schedule_run::Column::CancelDueAt, Expr::value(now));
                cancels.push(run_id_of(run)?);
            }
            update.filter(schedule_run::Column::Id.eq(&run.id)).exec(db).await?;
        }
        Ok(MarkedSent { marked, cancels })
    }
}

impl BuiltInTool for ListUnsent {
    const TITLE: &'static str = "List runs of schedules that were not sent";
    const DESCRIPTION: &'static str = "Gives open runs that are not known to be published, or were published \
        a while ago, each with a lease. They are given again only after the same time; a run that was \
        published, when its age has doubled or an hour later. Gives the handoffs of runs that were given \
        up, again and again until they have their answers, to be cancelled.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Unsent, ToolError> {
        let (db, now) = (&context.db, context.now);
        let limit = input.limit.clamp(1, MAX_UNSENT);
        let age = i64::try_from(input.older_than_seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let before = now.saturating_sub(age);
        let is_unsent = Condition::all()
            .add(schedule_run::Column::State.eq(RunState::Pending.as_str()))
            .add(schedule_run::Column::ClaimedAt.lte(before));
        let mut runs = DueRuns::new(usize::try_from(limit).unwrap_or(usize::MAX));
        for wanted in [is_unsent, is_to_be_resent(now)] {
            let found = schedule_run::Entity::find()
                .filter(wanted)
                .order_by_asc(schedule_run::Column::ClaimedAt)
                .limit(limit)
                .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
                .all(db)
                .await?;
            for run in found {
                if runs.is_full() {
                    break;
                }
                claim(context, &run.id).await?;
                runs.add(context, run).await?;
            }
        }
        Ok(Unsent { runs: runs.runs, cancels: take_due_cancels(context, limit).await? })
    }
}

/// Selects open runs whose handoff was published, and may have to be again.
fn is_to_be_resent(now: i64) -> Condition {
    Condition::all()
        .add(schedule_run::Column::State.eq(RunState::Running.as_str()))
        .add(schedule_run::Column::Payload.is_not_null())
        .add(schedule_run::Column::TimeoutAt.gt(now))
        .add(resend::is_due(schedule_run::Column::FiredAt, schedule_run::Column::ClaimedAt, now))
}

impl BuiltInTool for EndRun {
    const TITLE: &'static str = "End a run of a schedule";
    const DESCRIPTION: &'static str = "Stores the answer to the handoff of a run, and gives back its \
        leases unless it failed. A run that has ended keeps its end.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<EndedRun, ToolError> {
        let state = match input.outcome {
            RunOutcome::Completed => RunState::Completed,
            RunOutcome::Question => RunState::Question,
            RunOutcome::Failed => RunState::Failed,
            RunOutcome::Cancelled => RunState::Cancelled,
        };
        let id = input.handoff_id.to_string();
        let answer = cut(&secrets::redact(&input.text.replace('\0', "")), MAX_TEXT_BYTES);
        let code = input.error_code.map(|code| cut(&code.replace('\0', ""), MAX_CODE_BYTES));
        let now = Expr::value(context.now);
        let sent_at = Expr::col(schedule_run::Column::SentAt).if_null(now.clone());
        let ended = schedule_run::Entity::update_many()
            .col_expr(schedule_run::Column::State, Expr::value(state.as_str()))
            .col_expr(schedule_run::Column::EndedAt, now)
            .col_expr(schedule_run::Column::SentAt, sent_at)
            .col_expr(schedule_run::Column::TimeoutAt, Expr::value(None::<i64>))
            .col_expr(schedule_run::Column::Payload, Expr::value(None::<String>))
            .col_expr(schedule_run::Column::Answer, Expr::value(answer))
            .col_expr(schedule_run::Column::ErrorCode, Expr::value(code))
            .filter(schedule_run::Column::Id.eq(&id))
            .filter(schedule_run::Column::EndedAt.is_null())
            .filter(schedule_run::Column::JobId.is_null())
            .exec(&context.db)
            .await?;
        if ended.rows_affected == 0 {
            // A handoff that has its answer needs no cancel.
            schedule_run::Entity::update_many()
                .col_expr(schedule_run::Column::CancelDueAt, Expr::value(None::<i64>))
                .filter(schedule_run::Column::Id.eq(&id))
                .filter(schedule_run::Column::CancelDueAt.is_not_null())
                .exec(&context.db)
                .await?;
        } else if state != RunState::Failed {
            // A failure may be replayed, under its lease.
            let (db, now, by) = (&context.db, context.now, context.author());
            context.leases.give_back_of_handoff(db, &id, now, &by).await?;
            if state == RunState::Cancelled {
                JobBook::new(db, context.sandboxes, now).cancel_of_handoff(&id, &by).await?;
            }
        }
        Ok(EndedRun { ended: ended.rows_affected == 1 })
    }
}

fn cut(text: &str, max_bytes: usize) -> String {
    text[..text.floor_char_boundary(max_bytes)].to_owned()
}
