//! Counts workflows for the metrics.

use std::{sync::Arc, time::Duration};

use broker::Chain;
use control::{count_workflows, newest_workflow_event};
use sea_orm::DbErr;
use store::Store;
use tokio::{select, time::interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::metrics::Metrics;

/// Shorter than common scrape intervals of metrics.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);

/// Counts the workflows of the store, whichever gateway changed them.
#[derive(Debug)]
pub(crate) struct WorkflowCounter {
    store: Store,
    metrics: Arc<Metrics>,
    newest_event: i64,
}

impl WorkflowCounter {
    /// Begins to count: what happened before is not counted.
    pub(crate) async fn open(store: Store, metrics: Arc<Metrics>) -> Result<Self, DbErr> {
        let newest_event = newest_workflow_event(&store).await?;
        Ok(Self { store, metrics, newest_event })
    }

    /// Counts until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(COUNT_INTERVAL);
        let mut is_failing = false;
        loop {
            select! {
                () = stop.cancelled() => return,
                // Cancel-safe.
                _ = ticks.tick() => {}
            }
            match count_workflows(&self.store, self.newest_event).await {
                Ok(counts) => {
                    self.newest_event = counts.newest_event;
                    is_failing = false;
                    self.metrics.set_workflows(&counts);
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        warn!(error = %Chain(&error), "Workflows not counted; retrying.");
                    }
                }
            }
        }
    }
}
