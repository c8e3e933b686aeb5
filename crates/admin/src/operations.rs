//! The operations of administrators and users, behind REST and console alike. Every change to the store is
//! one transaction and one audit row; an operation in NATS has its intent written before and its audit row
//! after it.

mod audit;
mod catalogues;
mod chat;
mod dead;
mod egress;
mod handoffs;
mod jobs;
mod leases;
mod memory;
mod namespaces;
mod nodes;
mod outbox;
mod preferences;
mod quarantine;
mod refresh;
mod rules;
mod schedules;
mod settings;
mod skills;
mod tasks;
mod threads;
mod tokens;
mod tools;
mod upstreams;
mod work;
mod workflows;

use control::ToolError;
pub(crate) use handoffs::{
    Attempt, AttemptEnd, HandoffHistory, HandoffState, HandoffStep, OfferedTool, Outcome, StepKind,
};
use serde_json::Value;
pub(crate) use settings::is_permanent_setting;
pub(crate) use tasks::TaskNeighbours;
use tools::tool_state;
pub(crate) use workflows::Steering;

use crate::Error;
pub(crate) use crate::work_cache::Work;

/// Converts an error of a built-in tool, whose rules apply here too. `field` names what is invalid.
fn convert_tool_error(field: &'static str, error: ToolError) -> Error {
    match error {
        ToolError::NotFound { what, id } => Error::not_found(what, id),
        ToolError::Conflict(why) => Error::Conflict(why),
        ToolError::Unavailable(why) => Error::Unreachable(why),
        ToolError::Store(error) => error.into(),
        other => Error::invalid(field, other.to_string()),
    }
}

/// Parses stored JSON; text that is not valid JSON is shown as a string.
fn stored_json(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}
