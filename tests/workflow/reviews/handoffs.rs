//! What the gateway really hands off, as it is on the wire.

use std::time::Duration;

use async_nats::Subscriber;
use futures_util::StreamExt;
use serde_json::Value;

use crate::stage::Stage;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Listens to handoffs of one kind.
pub(super) struct Handoffs(Subscriber);

impl Handoffs {
    /// Listens from now on.
    pub(super) async fn of(stage: &Stage, kind: &str) -> Self {
        let client = stage.nats.client().await;
        let heard = client.subscribe(format!("pma.handoff.{kind}")).await.unwrap();
        // What is published from here on is heard.
        client.flush().await.unwrap();
        Self(heard)
    }

    /// Returns the payloads of the next handoffs, in their order.
    pub(super) async fn next(&mut self, count: usize) -> Vec<Value> {
        let mut payloads = Vec::new();
        while payloads.len() < count {
            let heard = tokio::time::timeout(TIMEOUT, self.0.next()).await;
            let heard = heard.unwrap_or_else(|_| panic!("only {} of {count} handoffs", payloads.len()));
            let body: Value = serde_json::from_slice(&heard.unwrap().payload).unwrap();
            payloads.push(body["payload"].clone());
        }
        payloads
    }
}
