//! A machine that runs jobs.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "node")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    pub status: String,
    #[sea_orm(column_type = "Text")]
    pub capabilities: String,
    pub seen_at: i64,
}

super::plain_entity!();
