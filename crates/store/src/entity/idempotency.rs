//! An idempotency key and the outcome of the call that claimed it.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "idempotency")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub holder: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    pub tool: String,
    pub arguments_digest: String,
    pub state: String,
    #[sea_orm(column_type = "Text", nullable)]
    pub result: Option<String>,
    pub call_id: String,
    pub created_at: i64,
    pub expires_at: i64,
}

super::plain_entity!();

/// The call is still running, or its gateway stopped before it finished.
pub const RUNNING: &str = "running";
/// The call finished; `result` holds its result.
pub const DONE: &str = "done";
