//! A task. Its name is unique within `scope_key`: its project, or the user it belongs to.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "task")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    pub title: String,
    #[sea_orm(column_type = "Text")]
    pub description: String,
    #[sea_orm(column_type = "Text")]
    pub acceptance_criteria: String,
    pub status: String,
    pub project_id: Option<String>,
    pub scope_key: String,
    pub user_id: Option<String>,
    pub parent_task_id: Option<String>,
    pub schedule_id: Option<String>,
    pub run_id: Option<String>,
    pub position: i64,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
}

super::plain_entity!();
