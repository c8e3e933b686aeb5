//! Calls of agents, and their answers.

use policy::Denial;
use rmcp::model::CallToolResult;
use serde_json::{Map, Value};
use subjects::{canonical, edge::EdgeCall};
use uuid::Uuid;

use crate::keys;

/// Longest tool name in the audit.
const MAX_NAME_CHARS: usize = 128;

/// A call, as an agent made it.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// Calls with the same key have one effect, at the gateway as on this node.
    pub idempotency_key: Option<String>,
    pub traceparent: Option<String>,
}

impl Call {
    /// Returns the call as the audit names it, under a new id.
    pub(crate) fn to_audit(&self) -> EdgeCall {
        EdgeCall {
            call_id: Uuid::now_v7().to_string(),
            tool: printable(&self.tool),
            arguments_digest: Some(canonical::digest(&self.arguments)),
            trace_id: self.traceparent.as_deref().and_then(trace_id),
            key_digest: self.idempotency_key.as_deref().map(keys::named),
        }
    }
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The tool ran, and succeeded or failed.
    Result(Box<CallToolResult>),
    Denied(Denial),
    /// The request is refused, by the gateway or for its form.
    Rejected {
        code: i64,
        message: String,
    },
    /// The call was not made, and cannot be made at the moment.
    Unavailable(&'static str),
    /// The call was made, and its outcome could not be recorded.
    InDoubt,
}

/// Only printable ASCII is kept, so that a name cannot forge a line or control a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(char::is_ascii_graphic).take(MAX_NAME_CHARS).collect()
}

/// Returns the trace id of a W3C `traceparent`.
fn trace_id(traceparent: &str) -> Option<String> {
    let id = traceparent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_ascii_lowercase())
}
