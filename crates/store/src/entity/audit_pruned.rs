//! The point up to which the audit was pruned, from which the hash chain is verified. A single row.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "audit_pruned")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: i32,
    /// Sequence number of the last pruned row.
    pub seq: i64,
    pub hash: String,
}

super::plain_entity!();
