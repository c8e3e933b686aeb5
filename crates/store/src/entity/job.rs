//! A job: work that a node does for a task. One that has a `queue` is run in a sandbox.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "job")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub task_id: String,
    pub kind: String,
    pub status: String,
    /// For a job in a sandbox: what it runs.
    #[sea_orm(column_type = "Text")]
    pub payload: String,
    /// For a job in a sandbox: the result that its node reported.
    #[sea_orm(column_type = "Text", nullable)]
    pub result: Option<String>,
    /// The node that has it.
    pub node_id: Option<String>,
    pub run_id: Option<String>,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    /// The subject on which it waits, or waited.
    pub queue: Option<String>,
    /// Which nodes may run it, as JSON.
    #[sea_orm(column_type = "Text", nullable)]
    pub placement: Option<String>,
    pub lease_id: Option<String>,
    pub created_by: Option<String>,
    /// The stream sequence of the newest message of its chain that this row reflects.
    pub chain_sequence: i64,
    pub attempt: i64,
    pub engine: Option<String>,
    pub started_at: Option<i64>,
    pub ended_at: Option<i64>,
    pub end_kind: Option<String>,
    /// The end of what it wrote.
    #[sea_orm(column_type = "Text", nullable)]
    pub log_tail: Option<String>,
    /// What could not be stored or reached, a JSON array of texts.
    #[sea_orm(column_type = "Text", nullable)]
    pub problems: Option<String>,
    pub cancel_requested_at: Option<i64>,
    pub cancel_requested_by: Option<String>,
    /// The handoff under whose lease it was created.
    pub handoff_id: Option<String>,
}

impl Model {
    /// Returns a queued job that is not for a sandbox.
    pub fn queued(id: String, task_id: String, kind: String, payload: String, now: i64) -> Self {
        Self {
            id,
            task_id,
            kind,
            status: "queued".to_owned(),
            payload,
            result: None,
            node_id: None,
            run_id: None,
            version: 1,
            created_at: now,
            updated_at: now,
            queue: None,
            placement: None,
            lease_id: None,
            created_by: None,
            chain_sequence: 0,
            attempt: 0,
            engine: None,
            started_at: None,
            ended_at: None,
            end_kind: None,
            log_tail: None,
            problems: None,
            cancel_requested_at: None,
            cancel_requested_by: None,
            handoff_id: None,
        }
    }
}

super::plain_entity!();
