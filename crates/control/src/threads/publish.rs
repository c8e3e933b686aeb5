//! `thread.turn.sent` and `thread.turn.unsent`: which handoffs are published, and which may not be.

use contract::thread::{
    ListUnsent, MAX_MARKED, MAX_MESSAGES_BYTES, MAX_UNSENT, MarkSent, MarkedSent, Unsent, UnsentTurn,
};
use policy::Scope;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use super::{answerable_since, begin::issue_lease, into_turn};
use crate::{BuiltInTool, Context, Does, ToolError, check};
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
        // Locked in order: two orchestrators may mark the same turns.
        let unsent: Vec<String> = turn::Entity::find()
            .select_only()
            .column(turn::Column::Id)
            .filter(turn::Column::Id.is_in(ids))
            .filter(turn::Column::SentAt.is_null())
            .order_by_asc(turn::Column::Id)
            .lock_exclusive()
            .into_tuple()
            .all(&context.db)
            .await?;
        if unsent.is_empty() {
            return Ok(MarkedSent { marked: 0 });
        }
        let sent = turn::ActiveModel {
            sent_at: Set(Some(context.now)),
            unsent_since: Set(None),
            ..Default::default()
        };
        let marked = turn::Entity::update_many()
            .set(sent)
            .filter(turn::Column::Id.is_in(unsent))
            .exec(&context.db)
            .await?;
        Ok(MarkedSent { marked: marked.rows_affected })
    }
}

impl BuiltInTool for ListUnsent {
    const TITLE: &'static str = "List turns that may not be sent";
    const DESCRIPTION: &'static str = "Lists open turns that were stored some time ago and whose handoffs \
        are not known to be published, the oldest first, each with a lease.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Unsent, ToolError> {
        let age = i64::try_from(input.older_than_seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        let found = turn::Entity::find()
            .filter(turn::Column::UnsentSince.lte(context.now.saturating_sub(age)))
            .filter(turn::Column::UnsentSince.gt(answerable_since(context)))
            .order_by_asc(turn::Column::UnsentSince)
            .limit(input.limit.clamp(1, MAX_UNSENT))
            .all(&context.db)
            .await?;
        let (mut turns, mut size) = (Vec::new(), 0);
        for row in found {
            size += row.messages.len() + row.context.as_ref().map_or(0, String::len);
            if size > MAX_MESSAGES_BYTES && !turns.is_empty() {
                break;
            }
            let lease = issue_lease(context, &row).await?;
            turns.push(UnsentTurn { turn: into_turn(row)?, lease });
        }
        Ok(Unsent { turns })
    }
}
