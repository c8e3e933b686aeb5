//! A tool call, whether rmcp or the fast path has parsed it.

use std::sync::Arc;

use mcp::IDEMPOTENCY_KEY;
use rmcp::{
    ErrorData,
    model::{
        CallToolResult, ErrorCode, JsonObject, ProgressNotificationParam, ProgressToken, RequestMetaObject,
    },
};
use serde_json::json;
use tokio::sync::mpsc;
use upstream::Progress;

use super::identity::Identity;
use policy::Denial;

use registry::sanitize;

use crate::calls::{Calls, Outcome, Request};

const DENIED: ErrorCode = ErrorCode(policy::DENIED_CODE);
const MAX_KEY_BYTES: usize = 256;
/// Progress notifications that may wait for the caller.
pub(super) const PROGRESS_BUFFER: usize = 16;

/// The parameters of a tool call.
#[derive(Debug)]
pub(super) struct Call {
    name: String,
    arguments: JsonObject,
    key: Option<String>,
    traceparent: Option<String>,
}

impl Call {
    /// Takes the idempotency key and the trace from `_meta`. Fails if the key is invalid.
    pub(super) fn read(
        name: String,
        arguments: Option<JsonObject>,
        meta: &RequestMetaObject,
    ) -> Result<Self, ErrorData> {
        let meta = |name: &str| Some(meta.0.0.get(name)?.as_str()?.to_owned());
        let key = meta(IDEMPOTENCY_KEY);
        let is_wrong =
            |key: &String| key.is_empty() || key.len() > MAX_KEY_BYTES || key.contains(char::is_control);
        if key.as_ref().is_some_and(is_wrong) {
            return Err(ErrorData::invalid_params(
                format!("an idempotency key has 1 to {MAX_KEY_BYTES} bytes and no control characters"),
                None,
            ));
        }
        Ok(Self { name, arguments: arguments.unwrap_or_default(), key, traceparent: meta("traceparent") })
    }

    /// Runs the call and converts its outcome.
    pub(super) async fn run(
        self,
        calls: &Arc<Calls>,
        identity: Identity,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<CallToolResult, ErrorData> {
        identity.mark_handled();
        let outcome = calls.call(Request {
            call_id: identity.call_id,
            standing: identity.standing,
            revision: identity.revision,
            tool: self.name.clone(),
            arguments: self.arguments,
            key: self.key,
            traceparent: self.traceparent,
            progress,
        });
        match outcome.await {
            Outcome::Answered(result) => Ok(*result),
            Outcome::Denied(denial) => Err(denied(&denial, &self.name)),
            Outcome::Unavailable => Err(unavailable()),
            Outcome::InDoubt => Err(in_doubt()),
        }
    }
}

/// Converts the progress of an upstream into a notification for the caller.
pub(super) fn progress_param(token: &ProgressToken, progress: Progress) -> ProgressNotificationParam {
    let mut param = ProgressNotificationParam::new(token.clone(), progress.progress);
    param.total = progress.total;
    param.message = progress.message.map(|message| sanitize::text(&message).into_owned());
    param
}

/// Converts a denial. A tool that the caller may not see is reported like one that does not exist.
pub(super) fn denied(denial: &Denial, name: &str) -> ErrorData {
    if denial.hides_the_tool() {
        return ErrorData::invalid_params(format!("Unknown tool: {name}"), None);
    }
    ErrorData::new(DENIED, denial.to_string(), Some(json!({ "reason": denial.error_type() })))
}

/// Returns the error for a call whose outcome is not recorded. It is not a denial, because the tool may have
/// had its effect.
fn in_doubt() -> ErrorData {
    let message = "The tool was called, but the gateway could not record the outcome. It may have had its \
                   effect: check before you repeat the call, or repeat it with the same idempotency key.";
    ErrorData::internal_error(message, Some(json!({ "reason": "in_doubt" })))
}

pub(super) fn unavailable() -> ErrorData {
    ErrorData::internal_error("not available at the moment", None)
}
