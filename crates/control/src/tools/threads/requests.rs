//! `thread.turn.delivered` and `thread.turn.leave`: what became of the requests that waited for a turn.

use contract::thread::{LeaveTurn, LeftTurn, MAX_MARKED, MAX_WAIT_ID_BYTES, MarkDelivered, MarkedDelivered};
use policy::Scope;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QuerySelect};

use super::{cancel, waits::Waits};
use crate::{BuiltInTool, Context, Does, ToolError, arguments::check};
use store::entity::turn;

impl BuiltInTool for MarkDelivered {
    const TITLE: &'static str = "Mark answers as delivered";
    const DESCRIPTION: &'static str = "Records that clients received the answers of turns, so that a later \
        request with the same text is a new one. Returns how many were not marked before.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, mut input: Self) -> Result<MarkedDelivered, ToolError> {
        check::count("handoff ids", input.handoff_ids.len(), MAX_MARKED)?;
        // In order: two orchestrators may mark the same turns.
        input.handoff_ids.sort_unstable();
        let mut marked = 0;
        for id in input.handoff_ids {
            let delivered = turn::ActiveModel { delivered_at: Set(Some(context.now)), ..Default::default() };
            let updated = turn::Entity::update_many()
                .set(delivered)
                .filter(turn::Column::Id.eq(id.to_string()))
                .filter(turn::Column::DeliveredAt.is_null())
                .exec(&context.db)
                .await?;
            marked += updated.rows_affected;
        }
        Ok(MarkedDelivered { marked })
    }
}

impl BuiltInTool for LeaveTurn {
    const TITLE: &'static str = "Leave a turn";
    const DESCRIPTION: &'static str = "Records that a request does not wait for its turn any more. Returns \
        whether the turn is open and no other request waits for it, and cancels it then if that is wanted.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<LeftTurn, ToolError> {
        let id = input.handoff_id.to_string();
        let Some(open) = lock_open(context, &id).await? else { return Ok(LeftTurn { is_abandoned: false }) };
        let (mut waits, mut unnamed) = (Waits::of(&open)?, open.waiting);
        match &input.wait_id {
            Some(wait) => {
                check::non_blank("wait_id", wait, MAX_WAIT_ID_BYTES)?;
                waits.end(wait);
            }
            None => unnamed = unnamed.saturating_sub(1),
        }
        store_waits(context, &id, &waits, unnamed).await?;
        let is_abandoned = unnamed <= 0 && !waits.is_any_open();
        if is_abandoned && input.cancel {
            cancel::cancel(context, &id).await?;
        }
        Ok(LeftTurn { is_abandoned })
    }
}

/// Records that one more request waits for an open turn.
pub(super) async fn join(context: &Context<'_>, id: &str, wait_id: Option<&str>) -> Result<(), ToolError> {
    let Some(open) = lock_open(context, id).await? else { return Ok(()) };
    let (mut waits, mut unnamed) = (Waits::of(&open)?, open.waiting);
    match wait_id {
        Some(wait) => waits.begin(wait),
        None => unnamed = unnamed.saturating_add(1),
    }
    store_waits(context, id, &waits, unnamed).await
}

/// Locks a turn until the transaction ends. `None` if it has ended, or there is none.
async fn lock_open(context: &Context<'_>, id: &str) -> Result<Option<turn::Model>, ToolError> {
    let found = turn::Entity::find_by_id(id).lock_exclusive().one(&context.db).await?;
    Ok(found.filter(|turn| turn.state.is_none()))
}

async fn store_waits(context: &Context<'_>, id: &str, waits: &Waits, unnamed: i64) -> Result<(), ToolError> {
    let wait_ids = Set(Some(waits.to_json()));
    let change = turn::ActiveModel { wait_ids, waiting: Set(unnamed), ..Default::default() };
    turn::Entity::update_many().set(change).filter(turn::Column::Id.eq(id)).exec(&context.db).await?;
    Ok(())
}
