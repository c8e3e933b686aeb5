//! `thread.turn.cancel`, and the cancels that are due.
//!
//! A published cancel may reach no worker. So it is stored in the transaction that revokes the leases of the
//! handoff, and orchestrators publish it again until the turn has its answer. It outlives a turn
//! whose thread is deleted.

use std::collections::{BTreeSet, HashMap};

use contract::thread::{AnswerState, CancelTurn, CancelledTurn, DueCancel, MAX_UNSENT};
use policy::Scope;
use sea_orm::{
    ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{Expr, LockBehavior, LockType},
};
use subjects::ErrorCode;

use super::{end, given_up_until, parse_id};
use crate::{BuiltInTool, Context, Does, JobBook, LeaseIssuer, Sandboxes, ToolError, resend};
use store::{
    clock,
    entity::{turn, turn_cancel},
};

/// Cancels turns within a transaction.
#[derive(Clone, Copy, Debug)]
pub struct TurnCanceller<'w> {
    pub db: &'w DatabaseExecutor<'w>,
    pub leases: &'w LeaseIssuer,
    pub sandboxes: &'w Sandboxes,
    /// Microseconds since 1970.
    pub now: i64,
    pub by: &'w str,
}

impl TurnCanceller<'_> {
    /// Stores that the work on a turn is to be stopped, revokes its leases, and has the jobs end that were
    /// begun under them. Returns whether it is open.
    pub async fn cancel(&self, id: &str) -> Result<bool, ToolError> {
        // Locked: a lease that is being issued for it is revoked, and later ones are refused.
        let found = turn::Entity::find_by_id(id).lock_exclusive().one(self.db).await?;
        let Some(open) = found.filter(|turn| turn.state.is_none()) else { return Ok(false) };
        let row = turn_cancel::Model { id: open.id, begun_at: open.created_at, due_at: self.now };
        turn_cancel::Entity::insert(turn_cancel::ActiveModel::from(row))
            .on_conflict_do_nothing_on([turn_cancel::Column::Id])
            .exec_without_returning(self.db)
            .await?;
        self.leases.revoke_of_handoff(self.db, id, self.now, self.by).await?;
        JobBook::new(self.db, self.sandboxes, self.now).cancel_of_handoff(id, self.by).await?;
        Ok(true)
    }
}

impl BuiltInTool for CancelTurn {
    const TITLE: &'static str = "Cancel a turn";
    const DESCRIPTION: &'static str = "Stores that the work on a turn of a user is to be stopped, revokes \
        the leases of its handoff, and cancels its jobs. It is listed until the turn has its answer, to be \
        published.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<CancelledTurn, ToolError> {
        let id = input.handoff_id.to_string();
        let own = turn::Entity::find_by_id(&id).filter(turn::Column::UserId.eq(input.user_id.as_str()));
        own.one(&context.db).await?.ok_or_else(|| ToolError::not_found("turn", &id))?;
        Ok(CancelledTurn { is_open: cancel(context, &id).await? })
    }
}

/// Cancels a turn on behalf of the caller. Returns whether it is open.
pub(super) async fn cancel(context: &Context<'_>, id: &str) -> Result<bool, ToolError> {
    let by = context.author();
    let (db, leases, sandboxes) = (&context.db, context.leases, context.sandboxes);
    TurnCanceller { db, leases, sandboxes, now: context.now, by: &by }.cancel(id).await
}

/// Returns whether a turn is cancelled. Its row has to be locked for a lease to be issued.
pub(super) async fn is_cancelled(context: &Context<'_>, id: &str) -> Result<bool, ToolError> {
    Ok(turn_cancel::Entity::find_by_id(id).one(&context.db).await?.is_some())
}

/// Returns those of some turns that are cancelled. Their rows have to be locked.
pub(super) async fn cancelled_among(
    context: &Context<'_>,
    turns: &[turn::Model],
) -> Result<BTreeSet<String>, ToolError> {
    if turns.is_empty() {
        return Ok(BTreeSet::new());
    }
    let ids = turns.iter().map(|turn| &turn.id);
    let found = turn_cancel::Entity::find().filter(turn_cancel::Column::Id.is_in(ids));
    Ok(found.all(&context.db).await?.into_iter().map(|row| row.id).collect())
}

/// Forgets the cancel of a turn that has its answer.
pub(super) async fn forget(context: &Context<'_>, id: &str) -> Result<(), ToolError> {
    turn_cancel::Entity::delete_by_id(id).exec(&context.db).await?;
    Ok(())
}

/// Ends a cancelled turn whose handoff is not known to be published. Its cancel stays due, since the handoff
/// may be published nevertheless.
pub(super) async fn end_unsent(context: &Context<'_>, row: &turn::Model) -> Result<bool, ToolError> {
    let text = "cancelled before it was handed off".to_owned();
    let answer = end::without_work(AnswerState::Cancelled, ErrorCode::Cancelled, text);
    end::end_of_locked_turn(context, row, answer).await
}

/// Returns the cancels that are due, the longest due first, and puts them off. Those of turns that are given
/// up are deleted.
pub(super) async fn take_due(context: &Context<'_>, limit: u64) -> Result<Vec<DueCancel>, ToolError> {
    turn_cancel::Entity::delete_many()
        .filter(turn_cancel::Column::BegunAt.lte(given_up_until(context)))
        .exec(&context.db)
        .await?;
    let due = turn_cancel::Entity::find()
        .filter(turn_cancel::Column::DueAt.lte(context.now))
        .order_by_asc(turn_cancel::Column::DueAt)
        .limit(limit.clamp(1, MAX_UNSENT))
        .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
        .all(&context.db)
        .await?;
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let open: Vec<(String, Option<i64>)> = turn::Entity::find()
        .select_only()
        .columns([turn::Column::Id, turn::Column::SentAt])
        .filter(turn::Column::Id.is_in(due.iter().map(|row| &row.id)))
        .filter(turn::Column::State.is_null())
        .into_tuple()
        .all(&context.db)
        .await?;
    let sent_at: HashMap<String, Option<i64>> = open.into_iter().collect();
    let mut cancels = Vec::with_capacity(due.len());
    for row in due {
        let pause = resend::cancel_pause_after(context.now.saturating_sub(row.begun_at));
        turn_cancel::Entity::update_many()
            .col_expr(turn_cancel::Column::DueAt, Expr::value(context.now.saturating_add(pause)))
            .filter(turn_cancel::Column::Id.eq(&row.id))
            .exec(&context.db)
            .await?;
        let sent_at = sent_at.get(&row.id).copied().flatten().map(clock::text);
        cancels.push(DueCancel { handoff_id: parse_id(&row.id)?, sent_at });
    }
    Ok(cancels)
}
