//! Announces the instance: registers the NATS micro service that `$SRV.PING`, `$SRV.INFO` and `$SRV.STATS`
//! find, answers status requests, and publishes presence.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use async_nats::service::ServiceExt;
use broker::{Broker, Chain};
use futures_util::StreamExt;
use subjects::{
    Backend, BackendState, InFlight, InstanceId, InstanceState, InstanceStatus, Kind, Role, Subject,
    Timestamp,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::telemetry::{Health, Metrics};

/// Service name shared by all instances; `cynodectl status` queries it.
pub(crate) const SERVICE: &str = "cynode-pma";
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(500);
/// Changes are announced at most this often. Those in between are announced together.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// The report of an instance about itself.
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
            backends: self.health.backends(),
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
    broker: Broker,
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
        Ok(Self { info, broker: broker.clone(), service, requests })
    }

    /// Answers status requests and announces changes until `stop`.
    pub(crate) async fn serve(mut self, stop: CancellationToken) {
        let mut announcer = ChangeAnnouncer::new(&self.info, &self.broker);
        loop {
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => break,
                // Cancel-safe: a request not yet yielded stays in the subscription.
                request = self.requests.next() => {
                    let Some(request) = request else { break };
                    let body = subjects::encode_json(&self.info.status());
                    if let Err(error) = request.respond(Ok(body.into())).await {
                        warn!(error = %Chain(&error), "Status request not answered.");
                    }
                }
                // Cancel-safe: a change that was not announced stays due.
                () = announcer.wait_until_due() => announcer.announce(&self.info, &self.broker).await,
            }
        }
        if let Err(error) = self.service.stop().await {
            debug!(%error, "NATS service not stopped cleanly.");
        }
    }
}

/// G14: announces that the instance became ready or not ready, that a backend was reached or lost, and that
/// the connection to NATS was restored. The start and the stop are announced by the worker.
struct ChangeAnnouncer {
    changes: watch::Receiver<()>,
    connections: watch::Receiver<u64>,
    /// The state that was last announced.
    announced: (InstanceState, BTreeMap<Backend, BackendState>),
    reconnected: bool,
    /// When a change is announced, if there is one.
    due_at: Option<Instant>,
    next_at: Instant,
}

impl ChangeAnnouncer {
    fn new(info: &InstanceInfo, broker: &Broker) -> Self {
        Self {
            changes: info.health.changes(),
            connections: broker.connections.clone(),
            announced: (InstanceState::Ready, BTreeMap::new()),
            reconnected: false,
            due_at: None,
            next_at: Instant::now(),
        }
    }

    /// Waits for a change, and until it may be announced. Cancel-safe.
    async fn wait_until_due(&mut self) {
        while self.due_at.is_none() {
            tokio::select! {
                // Cancel-safe: a change stays unseen until it is received.
                Ok(()) = self.changes.changed() => {}
                // Cancel-safe for the same reason.
                Ok(()) = self.connections.changed() => {
                    // The first connection is the start.
                    self.reconnected |= *self.connections.borrow_and_update() > 1;
                }
                // The worker stops.
                else => std::future::pending().await,
            }
            self.due_at = Some(self.next_at.max(Instant::now()));
        }
        if let Some(due_at) = self.due_at {
            sleep_until(due_at).await;
        }
    }

    /// Announces the status, if it is another one than was last announced.
    async fn announce(&mut self, info: &InstanceInfo, broker: &Broker) {
        self.due_at = None;
        let status = (info.health.state(), info.health.backends());
        let is_new = self.reconnected || status != self.announced;
        // Without a connection there are no receivers. The reconnect is announced.
        let is_connected = broker.client.connection_state() == async_nats::connection::State::Connected;
        if is_new && is_connected && info.health.is_serving() {
            info.announce(broker).await;
            (self.announced, self.reconnected) = (status, false);
            self.next_at = Instant::now() + ANNOUNCE_INTERVAL;
        }
    }
}
