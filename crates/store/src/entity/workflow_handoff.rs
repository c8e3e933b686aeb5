//! A handoff of a workflow that has no answer yet: what is needed to publish it again.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow_handoff")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub task_id: String,
    pub kind: String,
    pub began_at: i64,
    /// When it was last published, at the latest. Null while that is not known.
    pub sent_at: Option<i64>,
    pub traceparent: Option<String>,
    /// Body of its message.
    #[sea_orm(column_type = "Text")]
    pub body: String,
}

super::plain_entity!();
