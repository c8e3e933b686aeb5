use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Role;

/// What was done, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    pub trace_id: String,
    /// In which role the work was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Role>,
    /// What kind of input this was taken for, and how much work lies in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Assessment>,
    /// The tools that were offered to the model, best match first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The steps that were planned, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlannedStep>,
    pub steps: Vec<Step>,
    pub stop: Stop,
}

impl Trace {
    /// A trace of nothing done.
    pub fn ended(trace_id: impl Into<String>, stop: Stop) -> Self {
        Self {
            trace_id: trace_id.into(),
            profile: None,
            input: None,
            tools: Vec::new(),
            plan: Vec::new(),
            steps: Vec::new(),
            stop,
        }
    }
}

/// What an input is, and how much work lies in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Assessment {
    #[serde(rename = "type")]
    pub input_type: InputType,
    pub scope: WorkScope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_files: Option<u32>,
    #[serde(default)]
    pub components: Vec<String>,
    #[serde(default)]
    pub reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputType {
    NewProject,
    FeatureRequest,
    QuickFix,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkScope {
    Trivial,
    Small,
    Medium,
    Large,
}

/// One step of a plan, and which of the plan's workers carried it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    pub name: String,
    pub worker: u32,
    pub state: PlannedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedState {
    Done,
    Failed,
    NotStarted,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    pub index: u32,
    pub act: Act,
    /// The model or the tool.
    pub name: String,
    pub outcome: StepOutcome,
    pub ms: u64,
    /// How often it was tried.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub tries: u32,
    /// What a reader should know about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

fn once() -> u32 {
    1
}

fn is_once(tries: &u32) -> bool {
    *tries == 1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// A turn of the conversation with the model.
    Model,
    /// A typed question to a model, outside the conversation.
    Think,
    Tool,
    /// A verification by an analyst.
    Analyst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    Ok,
    Failed,
    Rejected,
    /// Begun, and cut short by a cancel or a deadline.
    Unfinished,
}

/// Why the work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    GoalMet,
    NeedsClarification,
    MaxSteps,
    ToolFailure,
    InferenceFailure,
    Budget,
    Deadline,
    Cancelled,
    /// Never started: the handoff was not acceptable.
    Refused,
    /// Given up after too many attempts.
    GivenUp,
}
