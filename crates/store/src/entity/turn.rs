//! One request of a user in a thread, and its answer.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "turn")]
pub struct Model {
    /// The id of its handoff.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub thread_id: String,
    pub user_id: String,
    /// The API key of the request.
    pub key_id: String,
    /// Counted from 0 within the thread.
    pub position: i64,
    /// The earlier turn whose question this one answers.
    pub continues: Option<String>,
    /// The client's name for the request, unique for user and API key.
    pub request_key: Option<String>,
    pub body_hash: String,
    /// What comes before `messages` in the handoff, as JSON. Removed when the turn ends, since it repeats
    /// earlier turns.
    #[sea_orm(column_type = "Text")]
    pub context: Option<String>,
    /// The messages that are new in this turn, as JSON.
    #[sea_orm(column_type = "Text")]
    pub messages: String,
    #[sea_orm(column_type = "Text")]
    pub options: String,
    /// `None` while the turn is open.
    pub state: Option<String>,
    /// The answer as JSON.
    #[sea_orm(column_type = "Text")]
    pub answer: Option<String>,
    pub created_at: i64,
    /// From when on `thread.turn.unsent` lists the open turn: `created_at`, then some time after its handoff
    /// was published.
    pub unsent_since: Option<i64>,
    pub sent_at: Option<i64>,
    pub ended_at: Option<i64>,
    /// Since when a client has the answer.
    pub delivered_at: Option<i64>,
    /// How many requests without a wait id wait for the answer of an open turn: those of orchestrators of
    /// earlier builds.
    pub waiting: i64,
    /// The wait ids of the other requests, as a JSON object: `true` for one that waits, `false` for one that
    /// left. Requests of a process that was killed stay `true`.
    #[sea_orm(column_type = "Text", nullable)]
    pub wait_ids: Option<String>,
}

super::plain_entity!();
