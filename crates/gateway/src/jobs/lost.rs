//! Looks from time to time for jobs that their queue lost.

use std::{sync::Arc, time::Duration};

use broker::Chain;
use control::{LeaseIssuer, Sandboxes};
use store::Store;
use tokio::{select, time::interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const INTERVAL: Duration = Duration::from_secs(60);

/// Queues lost jobs again.
#[derive(Debug)]
pub(crate) struct LostJobs {
    pub(crate) store: Store,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) leases: Arc<LeaseIssuer>,
}

impl LostJobs {
    /// Looks until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut looks = interval(INTERVAL);
        loop {
            select! {
                () = stop.cancelled() => return,
                // Cancel-safe.
                _ = looks.tick() => {}
            }
            self.requeue().await;
        }
    }

    async fn requeue(&self) {
        match control::requeue_lost_jobs(&self.store, &self.sandboxes, &self.leases).await {
            Ok(0) => {}
            Ok(jobs) => warn!(jobs, "Lost jobs queued again."),
            Err(error) => warn!(error = %Chain(&error), "Lost jobs not queued; retrying."),
        }
    }
}
