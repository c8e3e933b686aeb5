//! The operations of administrators and users, behind REST and console alike. Every change to the store is
//! one transaction and one audit row; an operation in NATS has its intent written before and its audit row
//! after it.

mod audit;
mod catalogues;
mod dead;
mod handoffs;
mod namespaces;
mod preferences;
mod quarantine;
mod refresh;
mod rules;
mod settings;
mod tokens;
mod tools;
mod upstreams;
mod work;

pub(crate) use handoffs::{
    Attempt, AttemptEnd, HandoffHistory, HandoffState, HandoffStep, Outcome, StepKind,
};
use serde_json::Value;
use tools::tool_state;

pub(crate) use crate::work_cache::Work;

/// Parses stored JSON; text that is not valid JSON is shown as a string.
fn stored_json(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}
