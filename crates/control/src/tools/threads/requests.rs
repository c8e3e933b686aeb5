//! `thread.turn.delivered` and `thread.turn.leave`: what became of the requests that waited for a turn.

use contract::thread::{LeaveTurn, LeftTurn, MAX_MARKED, MarkDelivered, MarkedDelivered};
use policy::Scope;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, ExprTrait, QueryFilter, sea_query::Expr};

use super::cancel;
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
        add_waiting(context, &id, -1).await?;
        let found = turn::Entity::find_by_id(&id).one(&context.db).await?;
        let is_abandoned = found.is_some_and(|turn| turn.state.is_none() && turn.waiting <= 0);
        if is_abandoned && input.cancel {
            cancel::cancel(context, &id).await?;
        }
        Ok(LeftTurn { is_abandoned })
    }
}

/// Records that one more request waits for an open turn.
pub(super) async fn join(context: &Context<'_>, id: &str) -> Result<(), ToolError> {
    add_waiting(context, id, 1).await
}

async fn add_waiting(context: &Context<'_>, id: &str, change: i64) -> Result<(), ToolError> {
    turn::Entity::update_many()
        .col_expr(turn::Column::Waiting, Expr::col(turn::Column::Waiting).add(change))
        .filter(turn::Column::Id.eq(id))
        .filter(turn::Column::State.is_null())
        .exec(&context.db)
        .await?;
    Ok(())
}
