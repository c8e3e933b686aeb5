//! Something that happened to a workflow, for people.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow_event")]
pub struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    pub task_id: String,
    pub epoch: i64,
    pub at: i64,
    pub node: String,
    pub step: Option<String>,
    pub outcome: String,
    #[sea_orm(column_type = "Text", nullable)]
    pub detail: Option<String>,
}

super::plain_entity!();
