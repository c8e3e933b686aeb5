//! What a node of a workflow wrote after a checkpoint, before the next one.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow_write")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub task_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub namespace: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub checkpoint_id: String,
    /// The graph's own id of the piece of work that wrote.
    #[sea_orm(primary_key, auto_increment = false)]
    pub write_task_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub idx: i64,
    pub task_path: String,
    pub channel: String,
    pub kind: String,
    pub data: Vec<u8>,
}

super::plain_entity!();
