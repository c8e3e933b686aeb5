//! A project.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "project")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    pub title: String,
    #[sea_orm(column_type = "Text")]
    pub description: String,
    pub user_id: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

super::plain_entity!();
