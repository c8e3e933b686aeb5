//! Workflows, which drive tasks to completion. Their bodies are those of the tools.

pub use contract::workflow::{
    Details as WorkflowDetails, Effect as WorkflowEffect, Event as WorkflowEvent, Policy as WorkflowPolicy,
    Status as WorkflowStatus, Workflow,
};
use serde::{Deserialize, Serialize};
use subjects::workflow::Step;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct WorkflowFilter {
    pub project_id: Option<String>,
    pub user_id: Option<String>,
    /// Only workflows in this status.
    pub status: Option<WorkflowStatus>,
    /// Default 50, at most 200.
    pub limit: Option<u64>,
    /// How many workflows to skip.
    pub offset: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct StartWorkflow {
    /// The steps of the task, as `workflow.start` takes them. They are planned when not given.
    #[serde(deserialize_with = "subjects::workflow::deserialize_given_steps")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub steps: Vec<Step>,
    pub policy: Option<WorkflowPolicy>,
    /// The user on whose behalf the workflow acts, if the task belongs to no user.
    pub user_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CancelWorkflow {
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ResumeWorkflow {
    /// The answer to its question: text, or yes or no where approval is asked for. Not for a pause.
    pub input: Option<String>,
    /// The `question_id` that it answers; needed where approval is asked for. If another question is open by
    /// now, it is refused.
    pub question_id: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RetryWorkflow {
    /// Whether the workflow starts over. By default it continues with the step that failed.
    pub from_start: bool,
}
