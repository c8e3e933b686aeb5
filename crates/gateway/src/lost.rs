//! Periodically republishes messages that the streams have lost, and deletes those that removed nodes left.

use std::{sync::Arc, time::Duration};

use broker::Chain;
use control::{LeaseIssuer, Sandboxes, ToolError};
use store::Store;
use tokio::{select, time::interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

const INTERVAL: Duration = Duration::from_secs(60);

/// Sends jobs, workflows and handoffs of workflows again that are stored and that the streams have lost, and
/// empties the queues of removed nodes.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) store: Store,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) leases: Arc<LeaseIssuer>,
}

impl Lost {
    /// Runs until `stop` is cancelled. All gateways do this: the first that finds a lost message sends it.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut looks = interval(INTERVAL);
        loop {
            select! {
                () = stop.cancelled() => return,
                // Cancel-safe.
                _ = looks.tick() => {}
            }
            let Self { store, sandboxes, leases } = &self;
            if let Err(error) = sandboxes.forget_left(store).await {
                warn!(error = %Chain(&error), "Queues of removed nodes not cleaned up; retrying.");
            }
            report("jobs", control::requeue_lost_jobs(store, sandboxes, leases).await);
            report("workflows", control::requeue_lost_workflows(store, sandboxes).await);
            report("handoffs", control::resend_lost_handoffs(store, sandboxes, leases).await);
        }
    }
}

fn report(what: &str, sent: Result<u64, ToolError>) {
    match sent {
        Ok(0) => {}
        Ok(count) => warn!(count, "Lost {what} sent again."),
        Err(error) => warn!(error = %Chain(&error), "Lost {what} not sent again; retrying."),
    }
}
