//! A conversation of a user with the project manager.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "thread")]
pub struct Model {
    /// For a named thread: derived from user and name, so that two gateways cannot create it twice.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub user_id: String,
    /// The name that the client gave it.
    pub name: Option<String>,
    pub title: String,
    /// How many turns it has.
    pub turn_count: i64,
    /// The turn that is not answered yet. There is at most one.
    pub open_turn: Option<String>,
    /// The last turn, if its answer is a question to the user.
    pub open_question: Option<String>,
    /// SHA-256 of what system and user said up to the last turn, by which a request that names no thread
    /// finds it.
    pub history_hash: String,
    pub created_at: i64,
    pub updated_at: i64,
}

super::plain_entity!();
