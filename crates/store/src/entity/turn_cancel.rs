//! A pending cancel of a turn: it is published again until the turn has its answer. It outlives the turn
//! of a thread that is deleted.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "turn_cancel")]
pub struct Model {
    /// The id of the turn, which is that of its handoff.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// When the turn was begun. Some time later its handoff is refused, and the cancel is obsolete.
    pub begun_at: i64,
    /// When the cancel is published next.
    pub due_at: i64,
}

super::plain_entity!();
