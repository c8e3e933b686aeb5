//! The payload of each kind of handoff.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ErrorCode, HandoffId, Refusal, ScopeId, Timestamp};

/// P14: the one model id that addresses the project manager, whichever model it uses.
pub const MODEL_ID: &str = "cynodeai.pm";

/// A conversation that needs its next assistant message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chat {
    /// Must be `cynodeai.pm`; anything else is direct inference and refused as `not_for_pma`.
    pub model: String,
    #[schemars(length(min = 1))]
    pub messages: Vec<ChatMessage>,
    /// Whether to also publish the text on `pma.delta.<handoff_id>` while the model produces it.
    #[serde(default)]
    pub stream: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<NonZeroU32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChatMessage {
    pub role: ChatRole,
    pub content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChatRole {
    System,
    User,
    Assistant,
}

/// A schedule that fired and whose payload needs interpretation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    pub schedule_id: ScopeId,
    pub run_id: ScopeId,
    pub fired_at: Timestamp,
    pub payload_type: SchedulePayloadType,
    /// A prompt is a string; a task is an object with at least a name.
    pub payload: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulePayloadType {
    Task,
    Prompt,
    /// Needs no interpretation: refused as `not_for_pma`.
    JobSpec,
}

/// A goal to be planned as tasks, or a task to be planned as steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    #[schemars(length(min = 1))]
    pub goal: String,
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    #[serde(default)]
    pub constraints: Vec<String>,
    /// If set, the steps of this task are planned, and no task is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<ScopeId>,
}

/// The user's answer to an earlier handoff that asked for clarification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Continue {
    pub continues: HandoffId,
    #[schemars(length(min = 1))]
    pub input: String,
    /// Whether the text is published while it is written, as for a chat.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// What the system says in the request, as in the messages of a chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<NonZeroU32>,
}

/// A task whose result an analyst verifies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verify {
    pub task_id: ScopeId,
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// How strict the verification is. Free form; passed to the analyst as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    pub artifact_id: ScopeId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    pub label: String,
    pub content: String,
}

impl Chat {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.model != MODEL_ID {
            let message =
                format!("only model `{MODEL_ID}` is the project manager's; this one is direct inference");
            return Err(Refusal::new(ErrorCode::NotForPma, message));
        }
        if self.messages.is_empty() {
            return Err(Refusal::invalid("payload.messages is empty: there is nothing to answer"));
        }
        check_temperature(self.temperature)
    }
}

impl Schedule {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        match (self.payload_type, &self.payload) {
            (SchedulePayloadType::JobSpec, _) => {
                let message = "a job_spec needs no interpretation; dispatch it without the project manager";
                Err(Refusal::new(ErrorCode::NotForPma, message))
            }
            (SchedulePayloadType::Prompt, Value::String(prompt)) if !prompt.trim().is_empty() => Ok(()),
            (SchedulePayloadType::Prompt, _) => {
                Err(Refusal::invalid("payload.payload of a prompt is a non-empty string"))
            }
            (SchedulePayloadType::Task, Value::Object(_)) => Ok(()),
            (SchedulePayloadType::Task, _) => Err(Refusal::invalid("payload.payload of a task is an object")),
        }
    }
}

impl Plan {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.goal.trim().is_empty() {
            return Err(Refusal::invalid("payload.goal is empty: there is nothing to plan"));
        }
        Ok(())
    }
}

impl Continue {
    /// Returns the answer to a question, without options.
    pub fn new(continues: HandoffId, input: impl Into<String>) -> Self {
        Self {
            continues,
            input: input.into(),
            stream: false,
            instructions: None,
            temperature: None,
            max_tokens: None,
        }
    }

    pub(crate) fn check(&self, own: HandoffId) -> Result<(), Refusal> {
        if self.continues == own {
            return Err(Refusal::invalid("payload.continues is the handoff itself"));
        }
        if self.input.trim().is_empty() {
            return Err(Refusal::invalid("payload.input is empty: there is nothing to continue with"));
        }
        check_temperature(self.temperature)
    }
}

fn check_temperature(temperature: Option<f64>) -> Result<(), Refusal> {
    if temperature.is_some_and(|degrees| !(0.0..=2.0).contains(&degrees)) {
        return Err(Refusal::invalid("payload.temperature lies outside 0 to 2"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_continuation_are_checked_as_those_of_a_chat() {
        let (own, asked) = (HandoffId::now(), HandoffId::now());
        let with = |temperature| Continue { temperature, ..Continue::new(asked, "staging") };
        for temperature in [None, Some(0.0), Some(2.0)] {
            assert_eq!(with(temperature).check(own), Ok(()));
        }
        for temperature in [-0.1, 2.1, f64::NAN] {
            assert!(with(Some(temperature)).check(own).is_err(), "{temperature}");
        }
    }
}
