//! A model that agents may be routed to.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "model")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    pub provider: String,
    #[sea_orm(column_type = "Text")]
    pub capabilities: String,
    pub context_tokens: i64,
    pub updated_at: i64,
}

super::plain_entity!();
