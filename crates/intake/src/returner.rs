//! Hands back deliveries that were dropped unsettled.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, jetstream::AckKind};
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tracing::warn;

use crate::{
    receipt::Receipt,
    workload::{Metrics, Releasable, Release, Workload},
};

/// Maximum number of deliveries handed back concurrently.
const MAX_CONCURRENT: usize = 256;
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// Receives deliveries that were dropped unsettled and hands them back: `Drop` cannot wait for the server.
#[derive(Debug)]
pub struct Returner<W: Workload>(mpsc::UnboundedSender<ReturnedDelivery<W>>);

impl<W: Workload> Clone for Returner<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A delivery to hand back.
#[derive(Debug)]
pub(super) struct ReturnedDelivery<W: Workload> {
    pub(super) kind: W::Kind,
    pub(super) receipt: Receipt,
    /// Journals of this delivery, to be released.
    pub(super) journals: Vec<Arc<W::Journal>>,
}

impl<W: Workload> Returner<W> {
    /// Returns a handle and the task behind it. The task ends when the last handle is dropped and everything
    /// is handed back.
    pub fn new(client: Client, metrics: Arc<W::Metrics>) -> (Self, impl Future<Output = ()>) {
        // Unbounded, but never longer than the number of slots.
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), run(receiver, client, metrics))
    }

    pub(super) fn hand_back(&self, returned: ReturnedDelivery<W>) {
        // The receiver is gone only after shutdown; then the server redelivers the message after `ack_wait`.
        drop(self.0.send(returned));
    }
}

async fn run<W: Workload>(
    mut dropped: mpsc::UnboundedReceiver<ReturnedDelivery<W>>,
    client: Client,
    metrics: Arc<W::Metrics>,
) {
    let mut returning = JoinSet::new();
    while let Some(ReturnedDelivery { kind, receipt, journals }) = dropped.recv().await {
        while returning.len() >= MAX_CONCURRENT {
            returning.join_next().await;
        }
        let (client, metrics) = (client.clone(), Arc::clone(&metrics));
        returning.spawn(async move {
            metrics.count_returned(&kind);
            let mut verb = AckKind::Nak(receipt.return_delay);
            for journal in journals.iter().filter(|_| receipt.is_fresh()) {
                // After a timeout the message is handed back without the release.
                match timeout(RELEASE_TIMEOUT, journal.release()).await {
                    Ok(Release::HandBack) | Err(_) => {}
                    Ok(Release::Acknowledge) => verb = AckKind::Ack,
                    Ok(Release::LeaveAlone) => return,
                }
            }
            if let Err(error) = receipt.hand_back(&client, verb).await {
                warn!(%kind, %error, "Message not handed back; the server redelivers it after ack_wait.");
            }
        });
        // Reaps finished tasks without waiting.
        while returning.try_join_next().is_some() {}
    }
    while returning.join_next().await.is_some() {}
}
