//! The workflow of a task: who works on it, and what it waits for.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "workflow")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub task_id: String,
    pub status: String,
    /// Counts the messages that were sent to runners; a message of an older run is ignored.
    pub run: i64,
    /// Why the newest run began: `start`, `resume` or `retry`.
    pub trigger: String,
    /// The authority of the runner that holds it. Raised when another one takes it, or when it is taken
    /// away.
    pub epoch: i64,
    pub holder: Option<String>,
    pub lease_expires_at: Option<i64>,
    /// Whether the message of the newest run was sent. It is not while the task waits for others.
    pub sent: bool,
    pub waiting_for: Option<String>,
    #[sea_orm(column_type = "Text", nullable)]
    pub question: Option<String>,
    pub interrupt_id: Option<String>,
    /// A person's answer to the interrupt.
    #[sea_orm(column_type = "Text", nullable)]
    pub input: Option<String>,
    /// JSON: the steps that were given at the start.
    #[sea_orm(column_type = "Text", nullable)]
    pub steps: Option<String>,
    /// JSON.
    #[sea_orm(column_type = "Text")]
    pub policy: String,
    /// How often it was restarted. Part of the ids of its handoffs, so that a new one has no old answer.
    pub restarts: i64,
    #[sea_orm(column_type = "Text", nullable)]
    pub error: Option<String>,
    #[sea_orm(column_type = "Text", nullable)]
    pub summary: Option<String>,
    pub user_id: String,
    pub project_id: Option<String>,
    pub started_by: String,
    /// JSON: the tools of the lease under which it was started. Its jobs and handoffs have no others.
    #[sea_orm(column_type = "Text", nullable)]
    pub tools: Option<String>,
    /// The memory profile of the caller that started it. If null, that of its user.
    pub profile: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub ended_at: Option<i64>,
}

super::plain_entity!();
