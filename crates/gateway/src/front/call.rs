//! A call of a tool, by whichever way it came in.

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

use super::edge::Identity;
use crate::{
    calls::{Calls, Outcome, Request},
    policy::Denial,
    sanitize,
};

/// Ours, in the range that JSON-RPC leaves to servers.
const DENIED: ErrorCode = ErrorCode(-32003);
const MAX_KEY: usize = 256;
/// How much progress waits for whoever asked for it.
pub(super) const PROGRESS_WAITING: usize = 16;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Call {
    name: String,
    arguments: JsonObject,
    key: Option<String>,
    traceparent: Option<String>,
}

impl Call {
    pub(super) fn read(
        name: String,
        arguments: Option<JsonObject>,
        meta: &RequestMetaObject,
    ) -> Result<Self, ErrorData> {
        let meta = |name: &str| Some(meta.0.0.get(name)?.as_str()?.to_owned());
        let key = meta(IDEMPOTENCY_KEY);
        let is_wrong = |key: &String| key.is_empty() || key.len() > MAX_KEY || key.contains(char::is_control);
        if key.as_ref().is_some_and(is_wrong) {
            return Err(ErrorData::invalid_params(
                format!("an idempotency key has 1 to {MAX_KEY} bytes and no control characters"),
                None,
            ));
        }
        Ok(Self { name, arguments: arguments.unwrap_or_default(), key, traceparent: meta("traceparent") })
    }

    pub(super) async fn run(
        self,
        calls: &Arc<Calls>,
        identity: Identity,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<CallToolResult, ErrorData> {
        identity.take_over();
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

/// How far a call is, as its caller is told.
pub(super) fn told(token: &ProgressToken, progress: Progress) -> ProgressNotificationParam {
    let mut param = ProgressNotificationParam::new(token.clone(), progress.progress);
    param.total = progress.total;
    param.message = progress.message.map(|message| sanitize::text(&message).into_owned());
    param
}

/// A tool that a caller may not see reads like one that is not there.
fn denied(denial: &Denial, name: &str) -> ErrorData {
    if denial.hides_the_tool() {
        return ErrorData::invalid_params(format!("Unknown tool: {name}"), None);
    }
    ErrorData::new(DENIED, denial.to_string(), Some(json!({ "reason": denial.error_type() })))
}

/// Never a denial: the tool may have had its effect.
fn in_doubt() -> ErrorData {
    let message = "The tool was called, but the gateway could not record what became of it. It may have had its effect: \
                   look before you repeat the call, or repeat it with the same idempotency key.";
    ErrorData::internal_error(message, Some(json!({ "reason": "in_doubt" })))
}

pub(super) fn unavailable() -> ErrorData {
    ErrorData::internal_error("not available at the moment", None)
}
