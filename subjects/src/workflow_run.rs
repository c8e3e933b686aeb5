//! The message that gives a workflow to a runner.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ScopeId;

/// The subject of the messages.
pub const SUBJECT: &str = "workflow.run";

/// The version of the message that this build writes.
pub const VERSION: u32 = 1;

/// A workflow that a runner is to work on. Which state it is in, the gateway says when the runner takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowRun {
    #[schemars(extend("const" = VERSION))]
    pub v: u32,
    pub task_id: ScopeId,
    /// Which run of the workflow it is. A newer one makes the message of an older one useless.
    pub run: i64,
}

impl WorkflowRun {
    pub fn new(task_id: ScopeId, run: i64) -> Self {
        Self { v: VERSION, task_id, run }
    }

    /// Returns the `Nats-Msg-Id`: each run has one message.
    pub fn message_id(&self) -> String {
        format!("{}.{}", self.task_id, self.run)
    }
}
