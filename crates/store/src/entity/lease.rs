//! A lease: on whose behalf an agent acts. The signed text is not stored.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "lease")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    /// The lease of the agent that issued this one. It is revoked with that one.
    pub parent_id: Option<String>,
    pub agent: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub task_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub handoff_id: Option<String>,
    /// A JSON array of tool names and prefixes.
    pub tools: Option<String>,
    /// The memory profile of all calls under the lease. If null, token and caller name it.
    pub profile: Option<String>,
    pub issued_at: i64,
    pub issued_by: String,
    pub not_before: i64,
    pub expires_at: i64,
    /// The lease can be renewed until then, also after it has expired.
    pub renewable_until: i64,
    pub revoked_at: Option<i64>,
    pub revoked_by: Option<String>,
}

super::plain_entity!();
