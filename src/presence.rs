//! Announces the instance: registers the NATS micro service that `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS`
//! find, answers status requests, and publishes presence.

use std::{collections::HashMap, sync::Arc, time::Duration};

use async_nats::service::ServiceExt;
use broker::{Broker, Chain};
use futures_util::StreamExt;
use subjects::{InFlight, InstanceId, InstanceStatus, Kind, Role, Subject, Timestamp};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::telemetry::{Health, Metrics};

/// Service name shared by all instances; `cynodectl status` queries it.
pub(crate) const SERVICE: &str = "cynode-pma";
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(500);

/// What an instance reports about itself.
#[derive(Clone, Debug)]
pub(crate) struct InstanceInfo {
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

impl InstanceInfo {
    fn status(&self) -> InstanceStatus {
        let running = |kind| self.metrics.of_kind(kind).in_flight.get();
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

    /// P20: publishes that this instance started, changed or stops. Best effort.
    pub(crate) async fn announce(&self, broker: &Broker) {
        let body = subjects::encode_json(&self.status());
        let publish = broker.client.publish(Subject::Presence.to_string(), body.into());
        // Without a connection there are no receivers, so nothing waits for it.
        if !matches!(timeout(ANNOUNCE_TIMEOUT, publish).await, Ok(Ok(()))) {
            debug!("Presence not announced.");
        }
    }
}

/// A registered instance that answers status requests.
pub(crate) struct Presence {
    info: InstanceInfo,
    service: async_nats::service::Service,
    requests: async_nats::service::endpoint::Endpoint,
}

impl Presence {
    pub(crate) async fn register(info: InstanceInfo, broker: &Broker) -> Result<Self, Error> {
        let service = broker
            .client
            .service_builder()
            .description("Agent worker: takes handoffs, answers each exactly once.")
            .metadata(info.metadata())
            .start(SERVICE, crate::VERSION)
            .await
            .map_err(Error)?;
        let subject = Subject::Instance(info.instance.clone()).to_string();
        let requests = service.endpoint_builder().name("status").add(subject).await.map_err(Error)?;
        Ok(Self { info, service, requests })
    }

    /// Answers status requests until `stop`.
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
            let body = subjects::encode_json(&self.info.status());
            if let Err(error) = request.respond(Ok(body.into())).await {
                warn!(error = %Chain(&error), "Status request not answered.");
            }
        }
        if let Err(error) = self.service.stop().await {
            debug!(%error, "NATS service not stopped cleanly.");
        }
    }
}
