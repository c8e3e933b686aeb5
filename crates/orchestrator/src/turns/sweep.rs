//! Publishes turns that were stored and not published: their orchestrator died in between, or NATS was away.

use std::time::Duration;

use broker::Chain;
use contract::thread::{ListUnsent, MAX_UNSENT};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Turns;

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
        for unsent in unsent.turns {
            let id = unsent.turn.handoff_id;
            match self.hand_off(&broker, &unsent.turn, Some(&unsent.lease), None).await {
                Ok(()) => {
                    self.metrics.swept.inc();
                    info!(handoff.id = %id, "Handoff published that was left behind.");
                }
                Err(error) => {
                    warn!(handoff.id = %id, error = %Chain(&error), "Handoff not published yet; retrying.");
                }
            }
        }
    }
}
