use std::{sync::Arc, time::Duration};

use async_nats::{Client, jetstream::AckKind};
use subjects::Kind;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};
use tracing::warn;

use super::delivery::Receipt;
use crate::{
    journal::{Journal, Release},
    telemetry::Metrics,
};

/// How many messages are handed back at once.
const AT_ONCE: usize = 256;
const LAST_WORD: Duration = Duration::from_secs(1);

/// Takes deliveries that were dropped unsettled. `Drop` cannot wait for the server; this does.
#[derive(Clone, Debug)]
pub(crate) struct Returner(mpsc::UnboundedSender<Returned>);

/// A message that is handed back.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) kind: Kind,
    pub(super) receipt: Receipt,
    /// What was begun of it, and is to be released.
    pub(super) journals: Vec<Arc<Journal>>,
}

impl Returner {
    /// The handle, and the work behind it, which ends when the last handle is gone and all is handed back.
    pub(crate) fn new(client: Client, metrics: Arc<Metrics>) -> (Self, impl Future<Output = ()>) {
        // Unbounded, but never longer than there are slots.
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), hand_back(receiver, client, metrics))
    }

    pub(super) fn take_back(&self, returned: Returned) {
        // Nobody listens only after shutdown; then the server's own timer hands it on.
        drop(self.0.send(returned));
    }
}

async fn hand_back(mut dropped: mpsc::UnboundedReceiver<Returned>, client: Client, metrics: Arc<Metrics>) {
    let mut returning = JoinSet::new();
    while let Some(Returned { kind, receipt, journals }) = dropped.recv().await {
        while returning.len() >= AT_ONCE {
            returning.join_next().await;
        }
        let (client, metrics) = (client.clone(), Arc::clone(&metrics));
        returning.spawn(async move {
            metrics.of(kind).returned.inc();
            let mut verb = AckKind::Nak(receipt.return_after);
            for journal in journals.iter().filter(|_| receipt.is_fresh()) {
                // Too late, the next one does without.
                match timeout(LAST_WORD, journal.release()).await {
                    Ok(Release::HandBack) | Err(_) => {}
                    Ok(Release::Acknowledge) => verb = AckKind::Ack,
                    Ok(Release::LeaveAlone) => return,
                }
            }
            if let Err(error) = receipt.give_back(&client, verb).await {
                warn!(%kind, %error, "Handoff not returned; the server redelivers it after ack_wait.");
            }
        });
        // Finished ones are let go as we pass.
        while returning.try_join_next().is_some() {}
    }
    while returning.join_next().await.is_some() {}
}
