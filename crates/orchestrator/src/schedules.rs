//! Fires schedules. The gateway decides which slots are due and stores their runs; here they are published as
//! handoffs, and marked. All orchestrators do this: a slot is claimed once, and publishing a run again is
//! harmless. What the streams have lost is published again.

use std::{sync::Arc, time::Duration};

use broker::{Broker, Chain, OnDemand};
use contract::{
    schedule::{DueRun, Fire, ListUnsent, MAX_UNSENT, MarkSent},
    thread::TurnAnswer,
};
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

/// Schedules that are created or started by a person are checked at least this often.
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
        self.cancel(&broker, &fired.cancels).await;
        self.publish(&broker, &fired.runs).await?;
        if !fired.has_more {
            self.metrics.note_schedules_checked();
        }
        Ok(if fired.has_more { MIN_PAUSE } else { pause_until(fired.next_at.as_deref()) })
    }

    /// Publishes runs that an orchestrator stored and did not publish, those that are lost, and the cancels
    /// of runs that were given up and are not answered.
    async fn sweep(&self, age: Duration) -> Result<(), CallError> {
        let Ok(broker) = self.nats.broker().await else { return Ok(()) };
        let older_than_seconds = age.as_secs().max(1);
        let unsent = self.gateway.call(&ListUnsent { older_than_seconds, limit: MAX_UNSENT }).await?;
        let (sent, runs): (Vec<_>, Vec<_>) = unsent.runs.into_iter().partition(|run| run.sent_at.is_some());
        self.cancel(&broker, &unsent.cancels).await;
        self.publish(&broker, &runs).await?;
        // Boxed, since the future is large.
        let lost = Box::pin(self.lost_of(&broker, sent)).await;
        self.publish(&broker, &lost).await
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
                Fate::Answered(answer) => self.record(id, answer).await,
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

    /// Stores an answer that was found in the stream.
    async fn record(&self, id: HandoffId, answer: TurnAnswer) {
        match self.gateway.call(&end_of_run(id, answer)).await {
            Ok(_) => debug!(handoff.id = %id, "Unrecorded answer found."),
            Err(error) => {
                debug!(handoff.id = %id, error = %Chain(&error), "Answer not recorded; retrying.");
            }
        }
    }

    /// Publishes runs and marks them as sent.
    async fn publish(&self, broker: &Broker, runs: &[DueRun]) -> Result<(), CallError> {
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
        if mark.handoff_ids.is_empty() {
            return Ok(());
        }
        let given_up = self.gateway.call(&mark).await?.cancels;
        self.cancel(broker, &given_up).await;
        Ok(())
    }

    /// Publishes the cancels of abandoned runs, again and again until the runs are answered.
    async fn cancel(&self, broker: &Broker, ids: &[HandoffId]) {
        for id in ids {
            // Boxed, since the future is large.
            if let Some(answer) = Box::pin(self.turns.cancel_run(broker, *id)).await {
                self.record(*id, answer).await;
            }
        }
    }
}

/// Returns the time until the next slot, at most [`MAX_PAUSE`].
fn pause_until(next_at: Option<&str>) -> Duration {
    let next = next_at.and_then(|text| text.parse::<Timestamp>().ok());
    let left = next.map(|next| Duration::try_from(next.at() - OffsetDateTime::now_utc()).unwrap_or_default());
    left.map_or(MAX_PAUSE, |left| left.clamp(MIN_PAUSE, MAX_PAUSE))
}
