//! `workflow.lease.*`: how a runner takes a workflow, holds it and gives it back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{ScopeId, workflow::Step};

use super::{WaitingFor, Workflow};
use crate::{
    artifact::Artifact,
    preference::Entry,
    task::{Task, TaskSummary},
    tool,
};

pub const MIN_TTL_SECONDS: u64 = 5;
pub const MAX_TTL_SECONDS: u64 = 120;

/// `workflow.lease.acquire`: takes a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    pub task_id: ScopeId,
    /// The run that the message names.
    pub run: i64,
    /// The runner, as people see it.
    #[schemars(length(min = 1, max = 128))]
    pub holder: String,
    #[schemars(range(min = MIN_TTL_SECONDS, max = MAX_TTL_SECONDS))]
    pub ttl_seconds: u64,
}

/// What a runner needs to work on a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Acquired {
    /// The runner's authority: every later call names it.
    pub epoch: i64,
    pub expires_at: String,
    pub workflow: Workflow,
    pub task: Task,
    /// The tasks that it depended on.
    pub dependencies: Vec<TaskSummary>,
    /// The steps that were given at the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The preferences that hold for the user, the project and the task.
    pub preferences_effective: Vec<Entry>,
    /// The files of the task: the first 200.
    pub artifacts: Vec<Artifact>,
    /// The state after the last node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// The answer of a person, for the interrupt `interrupt_id`. Kept until the workflow is given back, so it
    /// may have been taken before: the interrupt is then no longer pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_id: Option<String>,
}

tool!("workflow.lease.acquire": Acquire => Acquired);

/// `workflow.lease.renew`: holds a workflow for longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    pub task_id: ScopeId,
    pub epoch: i64,
    #[schemars(range(min = MIN_TTL_SECONDS, max = MAX_TTL_SECONDS))]
    pub ttl_seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Renewed {
    pub expires_at: String,
}

tool!("workflow.lease.renew": Renew => Renewed);

/// `workflow.lease.release`: gives a workflow back, with what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Release {
    pub task_id: ScopeId,
    pub epoch: i64,
    pub outcome: ReleaseOutcome,
}

/// What became of a workflow while a runner held it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ReleaseOutcome {
    /// Its task is completed.
    Done {
        #[schemars(length(max = 16_384))]
        summary: String,
    },
    /// Its task has failed.
    Failed {
        #[schemars(length(max = 16_384))]
        error: String,
    },
    /// A person has to answer before it goes on; its task is blocked.
    Waiting {
        /// `question` or `approval`.
        r#for: WaitingFor,
        #[schemars(length(max = 16_384))]
        question: String,
        #[schemars(length(max = 128))]
        interrupt_id: String,
    },
    /// The runner stops; another one goes on.
    HandedBack {},
}

tool!("workflow.lease.release": Release => Workflow);
