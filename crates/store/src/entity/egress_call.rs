//! A call of an agent to an external provider of models. Its id is the call id of its audit row.

use sea_orm::entity::prelude::*;

/// The outcome of a call that its orchestrator did not end in time. What it was expected to use is counted.
pub const LOST: &str = "lost";

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "egress_call")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// The token of the orchestrator that makes the call.
    pub made_by: String,
    pub agent: String,
    /// The token of the agent.
    pub token_id: String,
    pub lease_id: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub task_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub provider: String,
    pub model: Option<String>,
    /// The day on which it counts: `2026-11-17`, in UTC.
    pub day: String,
    pub expected_prompt_tokens: i64,
    pub expected_completion_tokens: i64,
    /// Millionths of a US dollar.
    pub expected_micro_usd: i64,
    pub begun_at: i64,
    /// After this time the call is lost.
    pub expires_at: i64,
    pub ended_at: Option<i64>,
    /// `completed`, `failed`, `cancelled` or [`LOST`]. `None` while the call is open.
    pub outcome: Option<String>,
}

super::plain_entity!();
