//! What became of a call that must have its effect once.

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

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

/// The call may still be at work, or its gateway ended.
pub const RUNNING: &str = "running";
/// `result` is the answer.
pub const DONE: &str = "done";
