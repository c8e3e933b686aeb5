//! An administrator's settings for a tool. A tool without a row has its defaults.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "tool_setting")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    pub enabled: bool,
    pub scope: String,
    pub safe_to_repeat: bool,
    /// [`READ`] or [`WRITE`] if an administrator has set it.
    pub does: Option<String>,
    pub updated_at: i64,
    pub updated_by: String,
}

/// An administrator declared the tool read-only.
pub const READ: &str = "read";
/// An administrator declared that the tool may have effects.
pub const WRITE: &str = "write";

super::plain_entity!();
