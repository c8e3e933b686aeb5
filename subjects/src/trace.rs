//! The trace in an answer: what was done for a handoff, step by step.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Role;

/// What was done for a handoff, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    pub trace_id: String,
    /// The role of the instance that did the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Role>,
    /// The assessment of the input, if one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Assessment>,
    /// The tools that were offered to the model, best match first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The words of the goal for which each tool was offered. A tool without words is similar to the goal, or
    /// is offered because nothing matches.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tool_words: BTreeMap<String, Vec<String>>,
    /// The planned steps, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plan: Vec<PlannedStep>,
    pub steps: Vec<Step>,
    pub stop: Stop,
}

impl Trace {
    /// Returns a trace without steps.
    pub fn new(trace_id: impl Into<String>, stop: Stop) -> Self {
        Self {
            trace_id: trace_id.into(),
            profile: None,
            input: None,
            tools: Vec::new(),
            tool_words: BTreeMap::new(),
            plan: Vec::new(),
            steps: Vec::new(),
            stop,
        }
    }
}

/// The type of an input and the estimated amount of work.
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

/// A step of a plan, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    pub name: String,
    pub state: PlannedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlannedState {
    Done,
    Failed,
    NotStarted,
}

/// A model call, tool call or verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    pub index: u32,
    pub act: Act,
    /// The name of the model or the tool.
    pub name: String,
    pub outcome: StepOutcome,
    pub ms: u64,
    /// The number of tries.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub tries: u32,
    /// Additional information for a human reader.
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
    /// A structured output: a typed answer requested from the model outside the conversation.
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
    /// Started, then interrupted by a cancellation or a deadline.
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
    /// The handoff was refused before any work.
    Refused,
    /// The worker gave the handoff up, for example after too many attempts.
    GivenUp,
}
