//! A message that a committed transaction sends and that is not known to be published yet.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "outbox")]
pub struct Model {
    /// Messages with the same `ordering` are published in this order.
    #[sea_orm(primary_key)]
    pub id: i64,
    pub subject: String,
    /// Sent as `Nats-Msg-Id`, by which the stream recognises a message that it already has.
    pub message_id: String,
    pub body: String,
    pub created_at: i64,
    /// The stream that stores it. Empty for a request that any subscriber answers.
    pub stream: String,
    pub ordering: String,
    /// What must hold for the message to be sent; see [`SendIf`](crate::SendIf).
    pub only_if: Option<String>,
    /// Headers besides those that every message has: a JSON object of names and values.
    #[sea_orm(column_type = "Text", nullable)]
    pub headers: Option<String>,
}

super::plain_entity!();
