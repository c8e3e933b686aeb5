//! An analyst's verdict on one acceptance criterion of a task.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "finding")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub task_id: String,
    pub run_id: Option<String>,
    #[sea_orm(column_type = "Text")]
    pub criterion: String,
    pub verdict: String,
    pub severity: String,
    #[sea_orm(column_type = "Text")]
    pub evidence: String,
    #[sea_orm(column_type = "Text", nullable)]
    pub location: Option<String>,
    pub created_at: i64,
    pub created_by: String,
}

super::plain_entity!();
