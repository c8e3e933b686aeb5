//! An audit row: one call and its outcome. Rows are append-only; each hash covers the previous row's hash.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "audit")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub seq: i64,
    pub created_at: i64,
    pub call_id: String,
    pub agent: String,
    pub subject: Option<String>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub tool: String,
    pub decision: String,
    pub status: String,
    pub error_type: Option<String>,
    pub duration_us: i64,
    pub arguments_digest: Option<String>,
    pub trace_id: Option<String>,
    pub lease_id: Option<String>,
    pub profile: Option<String>,
    pub node: Option<String>,
    pub node_line: Option<i64>,
    pub hash: String,
}

super::plain_entity!();
