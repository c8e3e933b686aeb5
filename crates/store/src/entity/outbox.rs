//! A message that a committed transaction sends and that is not known to be published yet.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "outbox")]
pub struct Model {
    /// Messages of one subject are published in this order.
    #[sea_orm(primary_key)]
    pub id: i64,
    pub subject: String,
    /// Sent as `Nats-Msg-Id`, by which the stream recognises a message that it already has.
    pub message_id: String,
    pub body: String,
    pub created_at: i64,
}

super::plain_entity!();
