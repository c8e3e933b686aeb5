//! `workflow.start`. The gateway does not serve it itself; an orchestrator may serve it behind the gateway.

use serde::Serialize;
use serde_json::Value;
use subjects::ScopeId;

use crate::tool;

/// Starts the workflow of a task.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    pub task_id: String,
    pub run_id: ScopeId,
}

tool!("workflow.start": Start => Value);
