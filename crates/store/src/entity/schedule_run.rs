//! A run of a schedule, or slots that were skipped. The id is made of schedule and slot; it is also the id of
//! the handoff.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "schedule_run")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub schedule_id: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub slot: i64,
    pub trigger: String,
    pub state: String,
    pub skip_reason: Option<String>,
    /// For skipped slots: the first; `slot` is the last.
    pub first_slot: Option<i64>,
    /// For skipped slots: how many there are.
    pub slots: Option<i64>,
    /// JSON. `None` once the run has ended, or if there is no handoff.
    #[sea_orm(column_type = "Text", nullable)]
    pub payload: Option<String>,
    pub fired_at: i64,
    /// When an orchestrator was last given the run to publish it.
    pub claimed_at: Option<i64>,
    pub sent_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub deadline_at: i64,
    /// When the run is ended without an answer; `None` if it has ended.
    pub timeout_at: Option<i64>,
    /// When the cancel of an abandoned run is published next; `None` if the run was not
    /// given up, if its handoff has its answer, or if that was long ago.
    pub cancel_due_at: Option<i64>,
    pub job_id: Option<String>,
    #[sea_orm(column_type = "Text", nullable)]
    pub answer: Option<String>,
    pub error_code: Option<String>,
}

super::plain_entity!();
