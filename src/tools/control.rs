//! Functions that the worker itself offers to a model.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use subjects::Role;

use crate::inference::{ASK_USER, Function};

/// The function by which a model has a task verified.
pub(crate) const REQUEST_VERIFICATION: &str = "request_verification";

/// A call to a function of the worker itself. These have no effect outside the handoff; everything that has
/// an effect goes through the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Ends the conversation with a question to the user.
    AskUser { question: String },
    /// Has an analyst verify a task.
    RequestVerification(VerificationRequest),
}

/// The arguments of `request_verification`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) struct VerificationRequest {
    pub(crate) task_id: String,
    #[serde(default)]
    pub(crate) acceptance_criteria: Vec<String>,
}

/// The arguments of `ask_user`.
#[derive(Deserialize)]
struct Question {
    question: String,
}

impl Control {
    /// Model names that no tool may have.
    pub(crate) const RESERVED: [&str; 2] = [ASK_USER, REQUEST_VERIFICATION];

    /// Returns the functions that a role is offered.
    pub(super) fn functions(role: Role) -> Vec<Function> {
        match role {
            Role::ProjectManager => vec![ask_user(), request_verification()],
            Role::ProjectAnalyst => Vec::new(),
        }
    }

    /// Parses a call. Returns `None` if it is not a call to a control function, and an error text for the
    /// model if the arguments are invalid.
    pub(crate) fn parse(
        role: Role,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Option<Result<Self, String>> {
        if role != Role::ProjectManager {
            return None;
        }
        let wrong = |error: serde_json::Error| format!("wrong arguments: {error}");
        let arguments = || Value::Object(arguments.clone());
        match name {
            ASK_USER => Some(
                serde_json::from_value(arguments())
                    .map_err(wrong)
                    .map(|Question { question }| Self::AskUser { question }),
            ),
            REQUEST_VERIFICATION => {
                Some(serde_json::from_value(arguments()).map_err(wrong).map(Self::RequestVerification))
            }
            _ => None,
        }
    }
}

fn ask_user() -> Function {
    let schema = json!({
        "type": "object",
        "properties": { "question": { "type": "string" } },
        "required": ["question"],
    });
    Function::new(ASK_USER, "Ends the turn with one question to the person.", &schema)
}

fn request_verification() -> Function {
    let schema = json!({
        "type": "object",
        "properties": {
            "task_id": { "type": "string" },
            "acceptance_criteria": {
                "type": "array", "items": { "type": "string" }, "description": "Default: those of the task.",
            },
        },
        "required": ["task_id"],
    });
    let description = "Has an analyst verify a task and returns the findings.";
    Function::new(REQUEST_VERIFICATION, description, &schema)
}
