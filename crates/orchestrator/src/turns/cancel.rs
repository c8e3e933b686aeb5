//! Cancels handoffs.

use std::time::Duration;

use async_nats::RequestErrorKind;
use subjects::{HandoffId, Subject};
use tokio::time::timeout;
use tracing::debug;

use super::Turns;
use crate::error::ApiError;

const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

impl Turns {
    /// Asks the workers to stop a handoff. Its answer then says that it was cancelled.
    pub(crate) async fn cancel(&self, id: HandoffId) -> Result<(), ApiError> {
        let broker = self.broker().await?;
        let unavailable = || {
            let message = "No project manager is there to be told; repeat the request.";
            ApiError::unavailable("no_worker", message)
        };
        let request = broker.client.request(Subject::Cancel(id).to_string(), "".into());
        match timeout(CANCEL_TIMEOUT, request).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Err(unavailable()),
            Ok(Err(error)) => {
                debug!(handoff.id = %id, %error, "Cancellation not confirmed.");
                Err(unavailable())
            }
            Err(_) => Err(unavailable()),
        }
    }
}
