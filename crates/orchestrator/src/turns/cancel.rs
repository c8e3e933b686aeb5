//! Cancels handoffs: for a client that asks for it, or whose key says so for one that is gone.

use std::{sync::Arc, time::Duration};

use async_nats::RequestErrorKind;
use contract::key::OnDisconnect;
use subjects::{HandoffId, Subject};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Turns;
use crate::error::ApiError;

const CANCEL_TIMEOUT: Duration = Duration::from_secs(3);

/// Cancels a turn when it is dropped, unless the turn was answered. Does nothing if work goes on for clients
/// that are gone.
#[derive(Debug)]
pub(crate) struct CancelOnDrop {
    /// `None`: nothing is cancelled.
    armed: Option<Arc<Turns>>,
    id: HandoffId,
}

impl CancelOnDrop {
    pub(super) fn new(turns: &Arc<Turns>, id: HandoffId, policy: OnDisconnect) -> Self {
        let armed = match policy {
            OnDisconnect::Continue => None,
            OnDisconnect::Cancel => Some(turns.clone()),
        };
        Self { armed, id }
    }

    pub(crate) fn disarm(&mut self) {
        self.armed = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(turns) = self.armed.take() else { return };
        let id = self.id;
        turns.tasks.clone().spawn(async move {
            // The client may have repeated the request.
            if turns.answers.is_expected(id) {
                return;
            }
            debug!(handoff.id = %id, "Client gone; handoff cancelled.");
            if let Err(error) = turns.cancel(id).await {
                warn!(handoff.id = %id, %error, "Handoff of a client that is gone not cancelled.");
            }
        });
    }
}

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
