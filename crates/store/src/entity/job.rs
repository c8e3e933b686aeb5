//! A job: work that a node does for a task.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "job")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub task_id: String,
    pub kind: String,
    pub status: String,
    #[sea_orm(column_type = "Text")]
    pub payload: String,
    #[sea_orm(column_type = "Text", nullable)]
    pub result: Option<String>,
    pub node_id: Option<String>,
    pub run_id: Option<String>,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
}

super::plain_entity!();
