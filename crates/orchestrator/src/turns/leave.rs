//! Handles requests that stop waiting for their turn.

use std::{sync::Arc, time::Duration};

use broker::{Chain, retry::RetryDelays};
use contract::{key::OnDisconnect, thread::LeaveTurn};
use subjects::HandoffId;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::Turns;
use crate::gateway::CallError;

/// A client whose connection broke may repeat its request, at any orchestrator. OpenAI's SDKs do so after at
/// most one second.
const REPEAT_WITHIN: Duration = Duration::from_secs(2);
/// How long leaving is repeated while the gateway is away. Afterwards the work goes on.
const LEAVE_FOR: Duration = Duration::from_secs(60);
const MIN_LEAVE_DELAY: Duration = Duration::from_millis(500);
const MAX_LEAVE_DELAY: Duration = Duration::from_secs(5);

/// The wait of a request for its turn. When it is dropped, the client is gone: the turn is cancelled if the
/// key says so and no other request waits for it, at any orchestrator.
#[derive(Debug)]
pub(crate) struct RequestWait {
    /// `None`: it does not matter whether the client is there.
    counted: Option<Arc<Turns>>,
    /// Its end, without a cancel.
    leave: LeaveTurn,
}

impl RequestWait {
    pub(super) fn new(turns: &Arc<Turns>, id: HandoffId, wait_id: String, policy: OnDisconnect) -> Self {
        let counted = match policy {
            OnDisconnect::Continue => None,
            OnDisconnect::Cancel => Some(turns.clone()),
        };
        Self { counted, leave: LeaveTurn { handoff_id: id, wait_id: Some(wait_id), cancel: false } }
    }

    /// Ends the wait of a request whose turn is answered.
    pub(crate) fn answered(&mut self) {
        self.counted = None;
    }

    /// Ends the wait of a request whose client is asked to retry. The work continues.
    pub(crate) fn postpone(&mut self) {
        let Some(turns) = self.counted.take() else { return };
        let leave = self.leave.clone();
        turns.tasks.clone().spawn(async move { turns.leave(&leave).await });
    }
}

impl Drop for RequestWait {
    fn drop(&mut self) {
        let Some(turns) = self.counted.take() else { return };
        let leave = LeaveTurn { cancel: true, ..self.leave.clone() };
        let id = leave.handoff_id;
        turns.tasks.clone().spawn(async move {
            sleep(REPEAT_WITHIN).await;
            if turns.leave(&leave).await {
                debug!(handoff.id = %id, "Client gone; handoff cancelled.");
                turns.publish_stored_cancel(id).await;
            }
        });
    }
}

impl Turns {
    /// Records that a request does not wait any more. Returns whether the turn is open and no other does; it
    /// is then cancelled if that is wanted.
    async fn leave(&self, leave: &LeaveTurn) -> bool {
        let mut delays = RetryDelays::within(MIN_LEAVE_DELAY, MAX_LEAVE_DELAY, LEAVE_FOR);
        let id = leave.handoff_id;
        loop {
            let error = match self.gateway.call(leave).await {
                Ok(left) => return left.is_abandoned,
                Err(error) => error,
            };
            let delay = delays.next_delay().filter(|_| matches!(error, CallError::Unavailable(_)));
            let Some(delay) = delay else {
                warn!(handoff.id = %id, error = %Chain(&error), "Client gone; its handoff continues.");
                return false;
            };
            sleep(delay).await;
        }
    }
}
