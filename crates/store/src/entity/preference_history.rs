//! The value of a preference in each of its versions.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "preference_history")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub preference_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub version: i64,
    #[sea_orm(column_type = "Text")]
    pub value: String,
    pub value_type: String,
    pub change: String,
    #[sea_orm(column_type = "Text", nullable)]
    pub reason: Option<String>,
    pub updated_at: i64,
    pub updated_by: String,
}

super::plain_entity!();
