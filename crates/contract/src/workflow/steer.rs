//! What people and managers do with workflows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{ScopeId, workflow::Step};

use super::{Details, Policy, Status, Workflow};
use crate::{Page, tool};

/// `workflow.start`: starts the workflow of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Start {
    pub task_id: ScopeId,
    /// The steps of the task. They are planned when not given.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "subjects::workflow::deserialize_given_steps"
    )]
    #[schemars(with = "Vec<Step>", length(max = subjects::workflow::MAX_STEPS))]
    pub steps: Vec<Step>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The run of a schedule that the task belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<ScopeId>,
}

impl Start {
    /// Returns the start of a task whose steps are planned.
    pub fn new(task_id: ScopeId) -> Self {
        Self { task_id, steps: Vec::new(), policy: None, run_id: None }
    }
}

tool!("workflow.start": Start => Workflow);

/// `workflow.get`: returns the workflow of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub task_id: ScopeId,
}

tool!("workflow.get": Get => Details);

/// `workflow.list`: lists workflows, the last changed first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Only workflows of this project.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub project_id: Option<ScopeId>,
    /// Only workflows of this user.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub user_id: Option<ScopeId>,
    /// Only workflows in this status.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub status: Option<Status>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("workflow.list": List => Page<Workflow>);

/// `workflow.cancel`: ends a workflow, with its jobs and handoffs, and cancels its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub task_id: ScopeId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub reason: Option<String>,
}

tool!("workflow.cancel": Cancel => Workflow);

/// `workflow.pause`: takes a workflow from its runner until it is resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    pub task_id: ScopeId,
}

tool!("workflow.pause": Pause => Workflow);

/// `workflow.resume`: resumes a workflow that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    pub task_id: ScopeId,
    /// The answer to its question: text, or yes or no where approval is asked for. Not for a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16_384))]
    pub input: Option<String>,
    /// The `question_id` that it answers; needed where approval is asked for. If another question is open by
    /// now, it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub question_id: Option<String>,
}

tool!("workflow.resume": Resume => Workflow);

/// `workflow.retry`: retries a workflow that failed or was cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    pub task_id: ScopeId,
    /// Whether the workflow starts over. By default it continues with the step that failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_start: bool,
}

tool!("workflow.retry": Retry => Workflow);
