//! `thread.turn.sent` and `thread.turn.unsent`: which handoffs are published, and which may not be.
//!
//! `unsent_since` of an open turn is the time from which on it is listed: its beginning while its handoff is
//! not known to be published, then some time later, since the streams may lose what they have.

use contract::thread::{
    ListUnsent, MAX_MARKED, MAX_MESSAGES_BYTES, MAX_UNSENT, MarkSent, MarkedSent, Unsent, UnsentTurn,
};
use policy::Scope;
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{LockBehavior, LockType},
};

use super::{answerable_since, begin::issue_lease, cancel, end, into_turn};
use crate::{BuiltInTool, Context, Does, ToolError, arguments::check, resend};
use store::entity::turn;

impl BuiltInTool for MarkSent {
    const TITLE: &'static str = "Mark turns as sent";
    const DESCRIPTION: &'static str = "Records that the handoffs of turns were published. Returns how many \
        were not marked before.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<MarkedSent, ToolError> {
        check::count("handoff ids", input.handoff_ids.len(), MAX_MARKED)?;
        let ids = input.handoff_ids.iter().map(ToString::to_string);
        let is_open_or_unsent =
            Condition::any().add(turn::Column::State.is_null()).add(turn::Column::SentAt.is_null());
        // Locked in order: two orchestrators may mark the same turns.
        let found: Vec<(String, Option<String>, Option<i64>)> = turn::Entity::find()
            .select_only()
            .columns([turn::Column::Id, turn::Column::State, turn::Column::SentAt])
            .filter(turn::Column::Id.is_in(ids))
            .filter(is_open_or_unsent)
            .order_by_asc(turn::Column::Id)
            .lock_exclusive()
            .into_tuple()
            .all(&context.db)
            .await?;
        let marked = found.iter().filter(|(_, _, sent_at)| sent_at.is_none()).count() as u64;
        let (new, others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, state, sent_at)| state.is_none() && sent_at.is_none());
        let ids_of = |rows: Vec<(String, _, _)>| rows.into_iter().map(|(id, _, _)| id).collect::<Vec<_>>();
        let sent = turn::ActiveModel { sent_at: Set(Some(context.now)), ..Default::default() };
        let resend_at = context.now.saturating_add(resend::AFTER_US);
        let sent_first = turn::ActiveModel { unsent_since: Set(Some(resend_at)), ..sent.clone() };
        for (change, ids) in [(sent_first, ids_of(new)), (sent, ids_of(others))] {
            if !ids.is_empty() {
                update(context, change, ids).await?;
            }
        }
        Ok(MarkedSent { marked })
    }
}

async fn update(context: &Context<'_>, change: turn::ActiveModel, ids: Vec<String>) -> Result<(), ToolError> {
    let update = turn::Entity::update_many().set(change).filter(turn::Column::Id.is_in(ids));
    update.exec(&context.db).await?;
    Ok(())
}

impl BuiltInTool for ListUnsent {
    const TITLE: &'static str = "List turns that may not be sent";
    const DESCRIPTION: &'static str = "Lists open turns that were stored some time ago and whose handoffs \
        are not known to be published, or were published a while ago, the oldest first, each with a lease. \
        One that was published is listed again when its age has doubled, and at least every hour. Lists \
        the handoffs of cancelled turns, again and again until they have their answers. Ends turns that no \
        worker can answer any more.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Unsent, ToolError> {
        let age = i64::try_from(input.older_than_seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        let limit = input.limit.clamp(1, MAX_UNSENT);
        // Before their cancels are forgotten.
        end::end_overdue(context).await?;
        let listed = turn::Entity::find()
            .filter(turn::Column::UnsentSince.lte(context.now.saturating_sub(age)))
            .filter(turn::Column::UnsentSince.gt(answerable_since(context)))
            .filter(turn::Column::CreatedAt.gt(answerable_since(context)))
            .filter(turn::Column::State.is_null())
            .order_by_asc(turn::Column::UnsentSince)
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked);
        // Unpublished handoffs come first.
        let mut found = Vec::new();
        for wanted in [turn::Column::SentAt.is_null(), turn::Column::SentAt.is_not_null()] {
            let left = limit.saturating_sub(found.len() as u64);
            found.extend(listed.clone().filter(wanted).limit(left).all(&context.db).await?);
        }
        let cancelled = cancel::cancelled_among(context, &found).await?;
        let (mut turns, mut size) = (Vec::new(), 0);
        for row in found {
            if cancelled.contains(&row.id) {
                match row.sent_at {
                    Some(_) => postpone(context, &row).await?,
                    None => drop(cancel::end_unsent(context, &row).await?),
                }
                continue;
            }
            size += row.messages.len() + row.context.as_ref().map_or(0, String::len);
            if size > MAX_MESSAGES_BYTES && !turns.is_empty() {
                break;
            }
            let lease = match issue_lease(context, &row).await {
                Ok(lease) => Some(lease),
                Err(ToolError::Store(error)) => return Err(ToolError::Store(error)),
                // Its project may be another user's by now. The other turns do not wait for that. One that
                // was published may still be answered.
                Err(why) => {
                    if row.sent_at.is_none() {
                        end::end_as_refused(context, &row, &why).await?;
                    }
                    None
                }
            };
            if row.sent_at.is_some() {
                postpone(context, &row).await?;
            }
            if let Some(lease) = lease {
                turns.push(UnsentTurn { turn: into_turn(row)?, lease });
            }
        }
        Ok(Unsent { turns, cancels: cancel::take_due(context, limit).await? })
    }
}

/// Lists a turn again only when its age has doubled or an hour later, so that many slow ones are no load.
async fn postpone(context: &Context<'_>, row: &turn::Model) -> Result<(), ToolError> {
    let wait = resend::pause_after(context.now.saturating_sub(row.created_at));
    let again_at = Set(Some(context.now.saturating_add(wait)));
    let change = turn::ActiveModel { unsent_since: again_at, ..Default::default() };
    update(context, change, vec![row.id.clone()]).await
}
