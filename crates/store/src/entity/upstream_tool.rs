//! A tool of an upstream: the pinned definition that is served, and the definition the upstream offers now.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "upstream_tool")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub namespace: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub remote: String,
    pub name: String,
    #[sea_orm(column_type = "Text", nullable)]
    pub pinned: Option<String>,
    pub pinned_hash: Option<String>,
    #[sea_orm(column_type = "Text", nullable)]
    pub offered: Option<String>,
    pub offered_hash: Option<String>,
    pub state: String,
    pub reason: String,
    pub decided_by: Option<String>,
    pub seen_at: i64,
}

super::plain_entity!();

/// The pinned definition is served.
pub const APPROVED: &str = "approved";
/// New, changed, or in conflict with another tool's name: not served until an administrator decides.
pub const QUARANTINED: &str = "quarantined";
/// The upstream no longer offers the tool.
pub const GONE: &str = "gone";
