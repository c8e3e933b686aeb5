//! Refusals of calls by runners, each with a reason code that tells the runner how to react.

use crate::ToolError;

const CONFLICT: &str = "conflict";

fn refused(reason: &'static str, message: String) -> ToolError {
    ToolError::Refused { code: CONFLICT, reason, message, retry_after_ms: None }
}

/// The runner does not hold the workflow any more: it stops, and leaves the message as it is.
pub(super) fn stale_epoch(task: &str, epoch: i64) -> ToolError {
    let message = format!(
        "the epoch {epoch} is stale: the workflow of task {task} was taken by another runner, paused, \
         cancelled, or has ended; stop working on it"
    );
    refused("stale_epoch", message)
}

/// A newer message is there, or was: the runner acknowledges this one.
pub(super) fn old_run(task: &str, run: i64, newest: i64) -> ToolError {
    let message = format!(
        "run {run} of the workflow of task {task} is over; the newest is {newest}: acknowledge the message"
    );
    refused("old_run", message)
}

/// The workflow has ended or waits for a person: the runner acknowledges the message.
pub(super) fn not_active(task: &str, status: &str) -> ToolError {
    let message =
        format!("the workflow of task {task} is {status} and needs no runner: acknowledge the message");
    refused("not_active", message)
}

/// Another runner holds the workflow: this one has the message delivered again later.
pub(super) fn held(task: &str, holder: &str, micros: i64) -> ToolError {
    let after = u64::try_from(micros / 1_000).unwrap_or_default().max(100);
    let message = format!("the workflow of task {task} is held by {holder} for another {after} ms");
    ToolError::Refused { code: CONFLICT, reason: "held", message, retry_after_ms: Some(after) }
}

/// There is no workflow: the runner acknowledges the message.
pub(super) fn not_found(task: &str) -> ToolError {
    let message = format!("the task {task} has no workflow; workflow.start starts one");
    ToolError::Refused { code: "not_found", reason: "not_found", message, retry_after_ms: None }
}

/// The key names something else: keys are unique within a workflow.
pub(super) fn key_in_use(key: &str, kind: &str) -> ToolError {
    refused("key_in_use", format!("the key {key} names a {kind} of this workflow; choose another key"))
}
