//! Answers the reports of nodes. One of the gateways answers each report.

use std::{sync::Arc, time::Duration};

use async_nats::Message;
use broker::{Chain, OnDemand, retry::RetryDelays};
use control::NodeBook;
use futures_util::StreamExt;
use store::Store;
use subjects::{Pattern, Subject, node::NodeStatus};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

const QUEUE_GROUP: &str = "gateway";

/// Stores what nodes report, and tells them what to do.
#[derive(Debug)]
pub(crate) struct PresenceResponder {
    pub(crate) store: Store,
    pub(crate) nats: Arc<OnDemand>,
}

impl PresenceResponder {
    /// Answers until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut delays = RetryDelays::forever(Duration::from_millis(100), Duration::from_secs(5));
        while !stop.is_cancelled() {
            match self.answer_all(&stop).await {
                Ok(()) => delays.reset(),
                Err(error) => {
                    debug!(error, "Subscription to node reports failed; retrying.");
                    select! {
                        () = stop.cancelled() => return,
                        () = sleep(delays.next_delay().unwrap_or_default()) => {}
                    }
                }
            }
        }
    }

    /// Answers until `stop` is cancelled or the subscription ends. The client restores it with the
    /// connection.
    async fn answer_all(&self, stop: &CancellationToken) -> Result<(), String> {
        let broker = self.nats.broker().await.map_err(|error| error.to_string())?;
        let subject = Pattern::NodePresences.to_string();
        let subscribed = broker.client.queue_subscribe(subject, QUEUE_GROUP.to_owned()).await;
        let mut reports = subscribed.map_err(|error| error.to_string())?;
        loop {
            let report = select! {
                () = stop.cancelled() => break,
                report = reports.next() => report,
            };
            let Some(report) = report else { return Err("the subscription ended".to_owned()) };
            let Some(reply) = self.answer(&report).await else { continue };
            if let Some(to) = report.reply
                && let Err(error) = broker.client.publish(to, reply.into()).await
            {
                debug!(%error, "Node not answered.");
            }
        }
        if let Err(error) = reports.unsubscribe().await {
            debug!(%error, "Subscription not ended.");
        }
        Ok(())
    }

    /// Returns the orders of a node; `None` if the report is not one or cannot be stored.
    async fn answer(&self, report: &Message) -> Option<Vec<u8>> {
        let Ok(Subject::NodePresence(node)) = report.subject.parse() else { return None };
        let status: NodeStatus = match serde_json::from_slice(&report.payload) {
            Ok(status) => status,
            Err(error) => {
                warn!(%node, %error, "Report of a node unreadable.");
                return None;
            }
        };
        // NATS lets a node report only under its own subject.
        if status.node != node || node.as_str() == subjects::NodeId::GATEWAY {
            warn!(%node, reported = %status.node, "Report of a node under another id ignored.");
            return None;
        }
        match NodeBook::report(&self.store, &status).await {
            Ok(orders) => Some(subjects::encode_json(&orders)),
            Err(error) => {
                warn!(%node, error = %Chain(&error), "Report of a node not stored.");
                None
            }
        }
    }
}
