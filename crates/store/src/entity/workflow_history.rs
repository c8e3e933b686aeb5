//! A checkpoint of the graph of a workflow, as the runner's saver serialised it.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow_history")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub task_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub namespace: String,
    /// Made by the runner, with the time of its clock, which says nothing about the order.
    #[sea_orm(primary_key, auto_increment = false)]
    pub checkpoint_id: String,
    pub parent_id: Option<String>,
    /// The serialiser's name of the type of `data`.
    pub kind: String,
    pub data: Vec<u8>,
    /// JSON.
    #[sea_orm(column_type = "Text")]
    pub metadata: String,
    pub epoch: i64,
    pub created_at: i64,
    /// Counts the checkpoints of a workflow in the order in which they were first stored.
    pub sequence: i64,
}

super::plain_entity!();
