//! What is wrong with the audit of a node, for administrators.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "edge_alarm")]
pub struct Model {
    /// Made of lease, kind and line: the same alarm is raised once.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub node: String,
    pub lease_id: String,
    pub kind: String,
    pub line: i64,
    #[sea_orm(column_type = "Text")]
    pub detail: String,
    pub raised_at: i64,
    /// Set when what was missing has come.
    pub resolved_at: Option<i64>,
}

super::plain_entity!();
