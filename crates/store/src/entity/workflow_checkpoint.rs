//! The state of a workflow after its last node, one row for each task.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow_checkpoint")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub task_id: String,
    pub epoch: i64,
    pub checkpoint_id: String,
    pub last_node_id: Option<String>,
    /// JSON.
    #[sea_orm(column_type = "Text")]
    pub state: String,
    pub updated_at: i64,
}

super::plain_entity!();
