//! A bearer token. Only its hash is stored.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "token")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub hash: String,
    pub label: String,
    pub agent: String,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    /// For a node's token: the only node that may use it.
    pub node: Option<String>,
    /// The only memory profile of its calls. `None`: each call names its own.
    pub profile: Option<String>,
    /// For an API key: whether its requests may name their user.
    pub is_front_end: bool,
    /// For an API key: what happens to the work for a client that closes its connection.
    pub on_disconnect: String,
    pub created_at: i64,
    pub created_by: String,
    pub expires_at: i64,
    pub revoked_at: Option<i64>,
}

super::plain_entity!();
