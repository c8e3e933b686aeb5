//! Fires schedules. The gateway decides which slots are due and stores their runs; here they are published as
//! handoffs, and marked. All orchestrators do this: a slot is claimed once, and publishing a run again is
//! harmless. What the streams have lost is published again.

use std::{sync::Arc, time::Duration};

use broker::{Broker, Chain, OnDemand};
use contract::schedule::{DueRun, Fire, ListUnsent, MAX_UNSENT, MarkSent};
use subjects::{HandoffId, Kind, Timestamp};
use time::OffsetDateTime;
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{
    gateway::{CallError, Gateway},
    metrics::Metrics,
    turns::{Fate, Turns, end_of_run},
};

/// Schedules that are created or started by a person are looked for at least this often.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The clocks of gateway and orchestrator may differ.
const MIN_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Schedules {
    pub(crate) turns: Arc<Turns>,
    pub(crate) gateway: Gateway,
    pub(crate) nats: Arc<OnDemand>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Schedules {
    /// Fires what is due, and publishes what was left behind, until `stop` is cancelled.
    pub(crate) async fn run(self, sweep_every: Duration, stop: CancellationToken) {
        let fire = async {
            loop {
                let pause = self.fire().await.unwrap_or_else(|error| {
                    debug!(error = %Chain(&error), "Schedules not fired; retrying.");
                    MAX_PAUSE
                });
                sleep(pause).await;
            }
        };
        let sweep = async {
            loop {
                sleep(sweep_every).await;
                if let Err(error) = self.sweep(sweep_every).await {
                    debug!(error = %Chain(&error), "Runs to publish not listed; retrying.");
                }
            }
        };
        select! {
            // What is cut off is published by the next sweep.
            () = stop.cancelled() => {}
            ((), ()) = async { tokio::join!(fire, sweep) } => {}
        }
    }

    /// Fires what is due. Returns the time until more is.
    async fn fire(&self) -> Result<Duration, CallError> {
        // Without NATS nothing could be published: the slots are decided about when it is back.
        let Ok(broker) = self.nats.broker().await else { return Ok(MAX_PAUSE) };
        let fired = self.gateway.call(&Fire::default()).await?;
        if !fired.runs.is_empty() || fired.jobs > 0 || fired.skipped > 0 {
            let (runs, jobs, skipped) = (fired.runs.len(), fired.jobs, fired.skipped);
            info!(runs, jobs, skipped, "Schedules fired.");
        }
        self.publish(&broker, &fired.runs, fired.cancels).await?;
        if !fired.has_more {
            self.metrics.note_schedules_checked();
        }
        Ok(if fired.has_more { MIN_PAUSE } else { pause_until(fired.next_at.as_deref()) })
    }

    /// Publishes runs that an orchestrator stored and did not publish, and those that are lost.
    async fn sweep(&self, age: Duration) -> Result<(), CallError> {
        let Ok(broker) = self.nats.broker().await else { return Ok(()) };
        let older_than_seconds = age.as_secs().max(1);
        let unsent = self.gateway.call(&ListUnsent { older_than_seconds, limit: MAX_UNSENT }).await?;
        let (sent, runs): (Vec<_>, Vec<_>) = unsent.runs.into_iter().partition(|run| run.sent_at.is_some());
        self.publish(&broker, &runs, unsent.cancels).await?;
        // Boxed, since the future is large.
        let lost = Box::pin(self.lost_of(&broker, sent)).await;
        self.publish(&broker, &lost, Vec::new()).await
    }

    /// Returns those of the runs whose handoffs are lost. Stores answers that are not stored.
    async fn lost_of(&self, broker: &Broker, sent: Vec<DueRun>) -> Vec<DueRun> {
        let mut lost = Vec::new();
        if sent.is_empty() {
            return lost;
        }
        let queue = self.turns.look_at_queue(broker).await;
        let handoffs: Vec<_> = sent.iter().map(DueRun::to_handoff).collect();
        let refused = self.turns.refused_among(broker, &handoffs).await;
        for run in sent {
            let (id, Some(sent_at)) = (run.handoff_id, &run.sent_at) else { continue };
            // A run ends at its deadline, so that its pauses need not grow.
            let handoff = (id, Kind::Schedule);
            match self.turns.fate((queue.as_ref(), &refused), handoff, sent_at, sent_at).await {
                Fate::Answered(answer) => match self.gateway.call(&end_of_run(id, answer)).await {
                    Ok(_) => debug!(handoff.id = %id, "Answer found that was not recorded."),
                    Err(error) => {
                        debug!(handoff.id = %id, error = %Chain(&error), "Answer not recorded; retrying.");
                    }
                },
                Fate::Refused(answer) => {
                    let code = answer.error_code.as_deref();
                    warn!(handoff.id = %id, code, "Run refused by the workers; ended.");
                    if let Err(error) = self.gateway.call(&end_of_run(id, answer)).await {
                        debug!(handoff.id = %id, error = %Chain(&error), "Run not ended; retrying.");
                    }
                }
                Fate::Lost => {
                    warn!(handoff.id = %id, "Run without an answer is published again.");
                    lost.push(run);
                }
                Fate::Queued => debug!(handoff.id = %id, "Run not answered yet."),
            }
        }
        lost
    }

    /// Publishes runs, cancels handoffs, and marks both.
    async fn publish(
        &self,
        broker: &Broker,
        runs: &[DueRun],
        cancels: Vec<HandoffId>,
    ) -> Result<(), CallError> {
        let mut mark = MarkSent::default();
        for run in runs {
            let id = run.handoff_id;
            match self.turns.publish(broker, &run.to_handoff(), Some(&run.lease), None).await {
                Ok(()) => mark.handoff_ids.push(id),
                Err(error) => {
                    warn!(handoff.id = %id, error = %Chain(&error), "Run not published yet; retrying.");
                }
            }
        }
        mark.cancelled = self.cancel(cancels).await;
        if mark == MarkSent::default() {
            return Ok(());
        }
        let replaced = self.gateway.call(&mark).await?.cancels;
        if !replaced.is_empty() {
            let cancelled = self.cancel(replaced).await;
            self.gateway.call(&MarkSent { cancelled, ..MarkSent::default() }).await?;
        }
        Ok(())
    }

    /// Cancels handoffs. Returns those that a worker was told of.
    async fn cancel(&self, ids: Vec<HandoffId>) -> Vec<HandoffId> {
        let mut cancelled = Vec::new();
        for id in ids {
            if self.turns.cancel(id).await {
                cancelled.push(id);
            } else {
                debug!(handoff.id = %id, "Run not cancelled yet; retrying.");
            }
        }
        cancelled
    }
}

/// Returns the time until the next slot, at most [`MAX_PAUSE`].
fn pause_until(next_at: Option<&str>) -> Duration {
    let next = next_at.and_then(|text| text.parse::<Timestamp>().ok());
    let left = next.map(|next| Duration::try_from(next.at() - OffsetDateTime::now_utc()).unwrap_or_default());
    left.map_or(MAX_PAUSE, |left| left.clamp(MIN_PAUSE, MAX_PAUSE))
}
