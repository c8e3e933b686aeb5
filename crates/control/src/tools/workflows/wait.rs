//! Waits for what a workflow began, without a transaction, for as long as the runner holds the workflow.

use std::time::Duration;

use contract::sandbox::MAX_WAIT_SECONDS;
use store::Store;
use tokio::time::Instant;

use super::rows;
use crate::ToolError;

/// Checks how long a call wants to wait.
pub(super) fn check(seconds: Option<u64>) -> Result<(), ToolError> {
    if seconds.is_some_and(|seconds| seconds > MAX_WAIT_SECONDS) {
        return Err(ToolError::Invalid(format!("`wait_seconds` must be at most {MAX_WAIT_SECONDS}")));
    }
    Ok(())
}

/// Returns until when a call waits.
pub(super) fn until(seconds: Option<u64>) -> Instant {
    Instant::now() + Duration::from_secs(seconds.unwrap_or_default().min(MAX_WAIT_SECONDS))
}

/// Fails if the runner does not hold the workflow any more.
pub(super) async fn check_held(store: &Store, task: &str, epoch: i64) -> Result<(), ToolError> {
    let row = rows::find(store.read(), task).await?;
    rows::check_epoch(&row, epoch)
}
