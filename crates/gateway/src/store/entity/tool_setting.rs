//! What an administrator changed about a tool; a tool without a row is as it came.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "tool_setting")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    pub enabled: bool,
    pub scope: String,
    pub safe_to_repeat: bool,
    /// `read` or `write` when an administrator said so.
    pub does: Option<String>,
    pub updated_at: i64,
    pub updated_by: String,
}

/// It only reads, as far as an administrator says.
pub const READ: &str = "read";
/// It may have an effect.
pub const WRITE: &str = "write";

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
