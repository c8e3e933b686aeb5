//! A job or a handoff that a workflow began. The row is committed with it, so the same key joins it.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow_effect")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub task_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    pub kind: String,
    /// The id of the job or of the handoff.
    pub id: String,
    pub step: Option<String>,
    /// For a handoff: the lease under which it is worked on.
    pub lease_id: Option<String>,
    pub epoch: i64,
    pub began_at: i64,
    /// For a handoff: when its answer was first seen. The row of a job says when it ended.
    pub ended_at: Option<i64>,
    /// For a handoff that was ended before its answer was seen: `given_up` or `cancelled`.
    pub end_reason: Option<String>,
    /// For a handoff: JSON of its completion.
    #[sea_orm(column_type = "Text", nullable)]
    pub answer: Option<String>,
    pub cost_usd: Option<f64>,
}

super::plain_entity!();
