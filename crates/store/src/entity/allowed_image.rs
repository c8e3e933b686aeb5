//! A container image that sandboxes may run.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "allowed_image")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub image: String,
    #[sea_orm(column_type = "Text")]
    pub note: String,
    pub created_at: i64,
    pub created_by: String,
}

super::plain_entity!();
