//! Cancels handoffs. The gateway stores that a turn is cancelled, so that a cancel which no worker gets is
//! published again until the turn has its answer.

use broker::{Broker, Chain};
use contract::thread::{CancelTurn, DueCancel, TurnAnswer};
use crash::reach;
use subjects::{HandoffId, Kind, ScopeId, Subject, Timestamp};
use tracing::{debug, info};

use super::{Turns, answers::AnswerUnknown, outcome};
use crate::{crash_points::Point, error::ApiError, gateway::CallError};

impl Turns {
    /// Cancels a turn of a user: stores that, and tells the workers. The answer of the turn then says that it
    /// was cancelled.
    pub(crate) async fn cancel_turn(&self, user_id: ScopeId, id: HandoffId) -> Result<(), ApiError> {
        let cancel = CancelTurn { user_id, handoff_id: id };
        self.gateway.call(&cancel).await.map_err(CallError::into_api_error)?;
        self.publish_stored_cancel(id).await;
        Ok(())
    }

    /// Publishes the cancel of a handoff. If no worker gets it, it is published again: the cancel is stored.
    pub(crate) async fn publish_stored_cancel(&self, id: HandoffId) {
        reach(Point::CancelStored).await;
        match self.nats.broker().await {
            Ok(broker) => publish_cancel(&broker, id).await,
            Err(error) => debug!(handoff.id = %id, error = %Chain(&error), "Cancel not published; retrying."),
        }
    }

    /// Publishes the cancel of an abandoned run of a schedule. Returns its answer instead if it
    /// has one. If no worker gets it, it is published again: the cancel is stored.
    pub(crate) async fn cancel_run(&self, broker: &Broker, id: HandoffId) -> Option<TurnAnswer> {
        if let Ok(Some(answer)) = self.find_answer(id).await {
            return Some(answer);
        }
        publish_cancel(broker, id).await;
        None
    }

    /// Publishes cancels again. Stores answers that are not stored. A turn whose handoff is lost is not
    /// handed off again, but ends as cancelled.
    pub(super) async fn sweep_cancels(&self, broker: &Broker, cancels: Vec<DueCancel>) {
        if cancels.is_empty() {
            return;
        }
        let queue = self.look_at_queue(broker).await;
        for DueCancel { handoff_id: id, sent_at } in cancels {
            let is_unanswered = match self.find_answer(id).await {
                Ok(Some(answer)) => {
                    self.end(id, answer).await;
                    continue;
                }
                Ok(None) => true,
                Err(AnswerUnknown) => false,
            };
            publish_cancel(broker, id).await;
            let sent_at = sent_at.and_then(|text| text.parse::<Timestamp>().ok());
            let (true, Some(queue), Some(sent_at)) = (is_unanswered, &queue, sent_at) else { continue };
            let has_lost = |kind: &Kind| queue.cannot_have(*kind, sent_at.at());
            if [Kind::Chat, Kind::Continue].iter().all(has_lost) {
                self.end_unanswered(id, outcome::cancelled()).await;
                info!(handoff.id = %id, "Handoff lost after its cancel; turn ended.");
            }
        }
    }
}

async fn publish_cancel(broker: &Broker, id: HandoffId) {
    if let Err(error) = broker.client.publish(Subject::Cancel(id).to_string(), "".into()).await {
        debug!(handoff.id = %id, %error, "Cancel not published; retrying.");
    }
}
