//! Who is here: the NATS micro service that `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS` find, and what this
//! instance answers when asked what it is doing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::service::ServiceExt;
use broker::{Broker, Chain};
use futures_util::StreamExt;
use subjects::{InFlight, InstanceId, InstanceStatus, Kind, Role, Subject, Timestamp};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::telemetry::{Health, Metrics};

/// The name all instances share; `cynodectl status` asks for it.
pub(crate) const SERVICE: &str = "cynode-pma";
const ANNOUNCE_WITHIN: Duration = Duration::from_millis(500);

/// What an instance says about itself.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    pub(crate) instance: InstanceId,
    pub(crate) role: Role,
    pub(crate) slots: Vec<(Kind, usize)>,
    pub(crate) started_at: Timestamp,
    pub(crate) bundle: String,
    pub(crate) model_route: String,
    pub(crate) http: Option<String>,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<Metrics>,
}

#[derive(Debug, thiserror::Error)]
#[error("registering as a NATS service")]
pub struct Error(#[source] async_nats::Error);

impl Card {
    fn status(&self) -> InstanceStatus {
        let running = |kind| self.metrics.of(kind).in_flight.get();
        InstanceStatus {
            instance: self.instance.clone(),
            role: self.role,
            version: crate::VERSION.to_owned(),
            state: self.health.state(),
            started_at: self.started_at.clone(),
            in_flight: self
                .slots
                .iter()
                .map(|&(kind, slots)| {
                    (kind, InFlight { running: usize::try_from(running(kind)).unwrap_or(0), slots })
                })
                .collect(),
            bundle: self.bundle.clone(),
            model_route: self.model_route.clone(),
        }
    }

    fn metadata(&self) -> HashMap<String, String> {
        let mut metadata = HashMap::from([
            ("instance".to_owned(), self.instance.to_string()),
            ("role".to_owned(), self.role.to_string()),
            ("bundle".to_owned(), self.bundle.clone()),
            ("model_route".to_owned(), self.model_route.clone()),
        ]);
        if let Some(http) = &self.http {
            metadata.insert("http".to_owned(), http.clone());
        }
        metadata
    }

    /// P20: tells whoever listens that this instance came, changed or goes. Best effort.
    pub(crate) async fn announce(&self, broker: &Broker) {
        let body = serde_json::to_vec(&self.status()).unwrap_or_default();
        let publish = broker.client.publish(Subject::Presence.to_string(), body.into());
        // While the connection is away nobody hears it, and nothing should wait for it.
        if !matches!(timeout(ANNOUNCE_WITHIN, publish).await, Ok(Ok(()))) {
            debug!("Presence not announced.");
        }
    }
}

/// An instance that can be found and asked.
pub(crate) struct Presence {
    card: Card,
    service: async_nats::service::Service,
    requests: async_nats::service::endpoint::Endpoint,
}

impl Presence {
    pub(crate) async fn register(card: Card, broker: &Broker) -> Result<Self, Error> {
        let service = broker
            .client
            .service_builder()
            .description("Agent worker: takes handoffs, answers each exactly once.")
            .metadata(card.metadata())
            .start(SERVICE, crate::VERSION)
            .await
            .map_err(Error)?;
        let subject = Subject::Instance(card.instance.clone()).to_string();
        let requests = service.endpoint_builder().name("status").add(subject).await.map_err(Error)?;
        Ok(Self { card, service, requests })
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(mut self, stop: CancellationToken) {
        loop {
            let request = tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => break,
                // Cancel-safe: a request not yet yielded stays in the subscription.
                request = self.requests.next() => request,
            };
            let Some(request) = request else { break };
            let body = serde_json::to_vec(&self.card.status()).unwrap_or_default();
            if let Err(error) = request.respond(Ok(body.into())).await {
                warn!(error = %Chain(&error), "Status request not answered.");
            }
        }
        if let Err(error) = self.service.stop().await {
            debug!(%error, "NATS service not stopped cleanly.");
        }
    }
}
