//! Instructions that agents may load.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "skill")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    pub scope_type: String,
    pub scope_id: String,
    #[sea_orm(column_type = "Text")]
    pub description: String,
    #[sea_orm(column_type = "Text")]
    pub content: String,
    pub read_only: bool,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub updated_by: String,
}

super::plain_entity!();
