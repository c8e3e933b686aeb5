//! A file that belongs to a task.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "artifact")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub task_id: String,
    pub run_id: Option<String>,
    pub path: String,
    pub media_type: String,
    pub size: i64,
    pub sha256: String,
    pub content: Vec<u8>,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
}

super::plain_entity!();
