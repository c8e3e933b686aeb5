//! What a memory profile holds in all. The row stays when nothing is left, since its version must not fall.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "memory_profile")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub profile: String,
    /// Raised by every change, in its transaction.
    pub version: i64,
    /// The version at which something was last deleted.
    pub deleted_version: i64,
    pub chunks: i64,
    /// Total size of the texts.
    pub bytes: i64,
    /// Maximum size of an index of all chunks.
    pub index_bytes: i64,
}

super::plain_entity!();
