//! Publishes turns that were stored and not published: their orchestrator died in between, or NATS was away.
//! Publishes those again, too, that the streams have lost, and the cancels of turns that have no answer yet.

use std::time::Duration;

use broker::{Broker, Chain};
use contract::thread::{ListUnsent, MAX_UNSENT, Turn, UnsentTurn};
use subjects::Timestamp;
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Turns,
    compose::{compose, kind_of},
    lost::Fate,
};

impl Turns {
    /// Looks for turns to publish, again and again. All orchestrators do; the queue drops copies.
    pub(super) async fn sweep(&self, every: Duration, stop: &CancellationToken) {
        loop {
            select! {
                () = stop.cancelled() => return,
                () = sleep(every) => {}
            }
            self.sweep_once(every).await;
        }
    }

    async fn sweep_once(&self, age: Duration) {
        // Without NATS there is nothing to be done, and leases would be issued for nothing.
        let Ok(broker) = self.nats.broker().await else { return };
        let older_than_seconds = age.as_secs().max(1);
        let unsent = match self.gateway.call(&ListUnsent { older_than_seconds, limit: MAX_UNSENT }).await {
            Ok(unsent) => unsent,
            Err(error) => {
                debug!(error = %Chain(&error), "Turns to publish not listed; retrying.");
                return;
            }
        };
        let cancels = unsent.cancels;
        let (sent, unsent): (Vec<_>, Vec<_>) =
            unsent.turns.into_iter().partition(|unsent| unsent.turn.sent_at.is_some());
        for unsent in unsent {
            if self.publish_again(&broker, &unsent).await {
                self.metrics.swept.inc();
                info!(handoff.id = %unsent.turn.handoff_id, "Unpublished handoff published.");
            }
        }
        // Boxed, since the futures are large.
        Box::pin(self.sweep_cancels(&broker, cancels)).await;
        Box::pin(self.sweep_sent(&broker, sent)).await;
    }

    /// Publishes handoffs again that are lost, and stores answers that are not stored.
    async fn sweep_sent(&self, broker: &Broker, sent: Vec<UnsentTurn>) {
        if sent.is_empty() {
            return;
        }
        let queue = self.look_at_queue(broker).await;
        let handoffs: Vec<_> = sent.iter().filter_map(|sent| compose(&sent.turn).ok()).collect();
        let refused = self.refused_among(broker, &handoffs).await;
        for sent in sent {
            let id = sent.turn.handoff_id;
            let Some((begun_at, sent_at)) = times(&sent.turn) else { continue };
            let kind = kind_of(&sent.turn);
            match self.fate((queue.as_ref(), &refused), (id, kind), &begun_at, &sent_at).await {
                Fate::Answered(answer) => {
                    self.end(id, answer).await;
                    debug!(handoff.id = %id, "Unrecorded answer found.");
                }
                Fate::Refused(answer) => {
                    let code = answer.error_code.as_deref();
                    warn!(handoff.id = %id, code, "Handoff refused by the workers; turn ended.");
                    // No worker has it, and it may be replayed: its lease stays.
                    self.end_unpublished(id, answer).await;
                }
                Fate::Lost => {
                    if self.publish_again(broker, &sent).await {
                        warn!(handoff.id = %id, "Handoff without an answer published again.");
                    }
                }
                Fate::Queued => debug!(handoff.id = %id, "Handoff not answered yet."),
            }
        }
    }

    /// Publishes a handoff under its own message id. Returns whether it was published.
    async fn publish_again(&self, broker: &Broker, unsent: &UnsentTurn) -> bool {
        let published = self.hand_off(broker, &unsent.turn, Some(&unsent.lease), None).await;
        if let Err(error) = &published {
            let id = unsent.turn.handoff_id;
            match error.final_answer() {
                Some(answer) => {
                    warn!(handoff.id = %id, error = %Chain(error), "Turn not handed off; ended.");
                    self.end_unpublished(id, answer).await;
                }
                None => {
                    warn!(handoff.id = %id, error = %Chain(error), "Handoff not published yet; retrying.");
                }
            }
        }
        published.is_ok()
    }
}

/// Returns when a turn was begun and when its handoff was last published.
fn times(turn: &Turn) -> Option<(Timestamp, Timestamp)> {
    Some((turn.created_at.parse().ok()?, turn.sent_at.as_deref()?.parse().ok()?))
}
