//! All parts together: started in order, stopped in order.

mod bench; // what handoffs are worked on with
mod parts; // tasks that live as long as the worker
mod signals; // stop, and hurry

use std::{sync::Arc, time::Duration};

use bench::Surroundings;
use broker::{Broker, Chain, ConnectError, ProvisionError, Provisioned, retry::Waits};
use parts::Parts;
use signals::Signals;
use subjects::{
    Pattern, Timestamp,
    streams::{self, Sizing},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    admission::Policy,
    breaker::{Breaker, Breakers, Gate},
    cancels::Cancels,
    config::{Backend, Config},
    dead,
    handoff::{self, Desk},
    inference::Offline,
    instructions::{self, Bundle},
    intake::{Around, Pool, Returner},
    presence::{self, Card, Presence},
    storage::Storage,
    telemetry::{Blocker, Health, HttpError, Metrics, Server},
    tools::Allowlist,
};

const FIRST_CONNECT_WAIT: Duration = Duration::from_millis(200);
const LONGEST_CONNECT_WAIT: Duration = Duration::from_secs(5);
/// What each of the last steps of a shutdown may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// Why an instance could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Instructions(#[from] instructions::Error),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Presence(#[from] presence::Error),
    #[error("subscribing to cancels")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("the connection to NATS was lost during start-up")]
    Flush(#[from] async_nats::client::FlushError),
    #[error(transparent)]
    Bench(#[from] bench::Error),
    /// Something that is needed cannot be reached.
    #[error("{0}")]
    Away(String),
    #[error("installing signal handlers")]
    Signals(#[source] std::io::Error),
    #[error("worker task ended unexpectedly: {0}")]
    Part(String),
}

impl Error {
    /// Whether a restart with the same configuration cannot help.
    pub fn is_configuration(&self) -> bool {
        match self {
            Self::Instructions(_) | Self::Bench(_) => true,
            Self::Connect(_)
            | Self::Provision(_)
            | Self::Http(_)
            | Self::Presence(_)
            | Self::Subscribe(_)
            | Self::Flush(_)
            | Self::Away(_)
            | Self::Signals(_)
            | Self::Part(_) => false,
        }
    }
}

/// Looks at everything a start needs, then leaves.
pub async fn check(config: Config) -> Result<String, Error> {
    let bundle = Bundle::load(config.role, &config.instructions)?;
    let broker = broker::connect(&config.nats.options).await?;
    let server = broker.client.server_info().version;
    let how = match config.nats.provision {
        // A check changes nothing: what would be made is reported as missing.
        broker::Provision::Create | broker::Provision::Verify => broker::Provision::Verify,
        broker::Provision::None => broker::Provision::None,
    };
    let streams = match broker::provision(&broker, how, config.role, sizing(&config)).await {
        Ok(_) => "as they should be".to_owned(),
        Err(error @ ProvisionError::Drifted(_)) if config.nats.provision == broker::Provision::Create => {
            format!("to be made at start, or left as they are: {}", Chain(&error))
        }
        Err(error) => return Err(error.into()),
    };
    let (breakers, _) = Gate::new();
    let (health, metrics) = (Arc::new(Health::starting()), Arc::new(Metrics::new()));
    let storage = Storage::new(
        Arc::new(broker),
        Breaker::new(Blocker::Storage, breakers.clone(), Arc::clone(&health)),
        streams::ANSWERS_KEPT,
    );
    let around =
        Surroundings { bundle: &bundle, storage: &storage, health: &health, metrics: &metrics, breakers };
    let bench = bench::build(&config, &around)?;
    if !bench.inference.is_there().await {
        return Err(Error::Away(format!("no model answers: {}", route(&config))));
    }
    let gateway = match &config.gateway {
        None => "none: a worker without tools".to_owned(),
        Some(gateway) => {
            let listed = bench.tools.catalogue().await.map_err(|error| Error::Away(error.to_string()))?;
            format!("{} ({} tools for this role)", gateway.url, listed.tools().count())
        }
    };
    let warnings: String = config.warnings.iter().map(|warning| format!("\nwarning    {warning}")).collect();
    Ok(format!(
        "role       {}\nbundle     {} ({})\nnats       {} (nats-server {server})\nstreams    {streams}\nmodel      {}\ngateway    {gateway}{warnings}\nall good",
        config.role,
        bundle.path.display(),
        &bundle.hash[..12],
        config.nats.options.shown_url(),
        route(&config),
    ))
}

/// Takes handoffs until SIGTERM or SIGINT. A second signal ends the grace at once.
pub async fn run(config: Config) -> Result<String, Error> {
    let mut signals = Signals::listen()?;
    config.warnings.iter().for_each(|warning| warn!("{warning}"));
    let bundle = Bundle::load(config.role, &config.instructions)?;
    info!(role = %config.role, bundle = %bundle.path.display(), hash = bundle.hash, "Instructions loaded.");
    let health = Arc::new(Health::starting());
    let metrics = Arc::new(Metrics::new());
    let mut parts = Parts::default();
    let http = match config.http {
        Some(address) => {
            let server = Server::bind(address, Arc::clone(&health), Arc::clone(&metrics)).await?;
            let address = server.address().to_string();
            info!(%address, "Serving /healthz, /readyz and /metrics.");
            let stop = parts.stop.clone();
            parts.spawn(server.serve(stop));
            Some(address)
        }
        None => None,
    };
    let asked_to_stop = signals.first.clone();
    let started = tokio::select! {
        biased;
        // Cancelled halfway, a start has made nothing that the next one would not make as well.
        () = asked_to_stop.cancelled() => None,
        started = start(&config, &health, &metrics) => Some(started?),
        never = signals.watch() => match never {},
    };
    let Some((broker, provisioned)) = started else {
        info!("Stopped before NATS was reachable.");
        parts.end().await;
        return Ok(String::new());
    };

    let worker = Worker { config, broker: Arc::new(broker), health, metrics, provisioned };
    worker.serve(parts, &bundle, http, signals).await
}

async fn start(config: &Config, health: &Health, metrics: &Metrics) -> Result<(Broker, Provisioned), Error> {
    let broker = connect(config, health).await?;
    let provisioned = broker::provision(&broker, config.nats.provision, config.role, sizing(config)).await?;
    tell_drift(&provisioned, metrics);
    Ok((broker, provisioned))
}

/// Waits for a server that is not there yet; gives up on one that says no.
async fn connect(config: &Config, health: &Health) -> Result<Broker, ConnectError> {
    let mut waits = Waits::forever(FIRST_CONNECT_WAIT, LONGEST_CONNECT_WAIT);
    loop {
        match broker::connect(&config.nats.options).await {
            Ok(broker) => {
                health.clear(Blocker::Nats);
                return Ok(broker);
            }
            Err(error) if error.may_pass() => {
                let why = Chain(&error).to_string();
                warn!(why, "NATS not reachable yet; retrying.");
                health.block(Blocker::Nats, why);
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(waits.next_wait().unwrap_or(LONGEST_CONNECT_WAIT)).await;
    }
}

fn sizing(config: &Config) -> Sizing {
    Sizing {
        replicas: config.nats.replicas,
        ack_wait: config.worker.ack_wait,
        dedupe_window: config.nats.dedupe_window,
    }
}

/// What answers, for people.
fn route(config: &Config) -> String {
    match &config.inference.backend {
        Backend::Offline { .. } => Offline::NAME.to_owned(),
        Backend::Replay { recording } => format!("recording {}", recording.display()),
        Backend::Endpoints { local, egress } => {
            let local = local.iter().map(|local| format!("{} at {}", local.model, local.base_url));
            let external = egress.iter().flat_map(|egress| {
                egress
                    .providers
                    .iter()
                    .map(|provider| format!("{} of {} by egress", provider.model, provider.name))
            });
            local.chain(external).collect::<Vec<_>>().join(", ")
        }
    }
}

fn tell_drift(provisioned: &Provisioned, metrics: &Metrics) {
    metrics.drift.set(i64::try_from(provisioned.drifts.len()).unwrap_or(i64::MAX));
    for drift in &provisioned.drifts {
        warn!(%drift, "Configuration drift left as it is; change it with the nats CLI, or remove it to have it created again.");
    }
}

struct Worker {
    config: Config,
    broker: Arc<Broker>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    provisioned: Provisioned,
}

impl Worker {
    async fn serve(
        self,
        mut parts: Parts,
        bundle: &Bundle,
        http: Option<String>,
        mut signals: Signals,
    ) -> Result<String, Error> {
        let (returner, returning) = Returner::new(self.broker.client.clone(), Arc::clone(&self.metrics));
        let mut closing = JoinSet::new();
        closing.spawn(returning);

        let (breakers, gate) = Gate::new();
        let desk = Arc::new(self.desk(bundle, breakers)?);
        let card = self.card(bundle, http);
        self.start_parts(&mut parts, &desk, &card).await?;

        let pulling = CancellationToken::new();
        let mut pools = self.start_pools(&desk, &returner, &gate, &pulling, &signals.second);
        // From here on the pools hold the only handles, and when they are done, nobody does.
        drop((desk, returner));
        self.health.clear(Blocker::Starting);
        card.announce(&self.broker).await;
        info!(instance = %self.config.instance, role = %self.config.role, version = crate::VERSION, model = route(&self.config), tools = Allowlist::of(self.config.role).in_words(), gateway = self.config.gateway.as_ref().map_or("none: a worker without tools", |gateway| &gateway.url), "Ready.");

        let asked_to_stop = signals.first.clone();
        let failure = tokio::select! {
            biased;
            // Cancel-safe per docs on `cancelled()`.
            () = asked_to_stop.cancelled() => None,
            // Cancel-safe: a finished part stays in the set until it is taken.
            part = parts.failed() => Some(part),
            // Cancel-safe: signals are kept by the listener.
            never = signals.watch() => match never {},
        };

        // 1. Not ready any more; no new handoffs.
        self.health.block(Blocker::Draining, "draining");
        info!(grace = %humantime::format_duration(self.config.worker.grace), "Stopping: letting work finish.");
        pulling.cancel();
        card.announce(&self.broker).await;
        // 2. Work finishes within its grace or is dropped; what is dropped goes to the returner.
        tokio::select! {
            () = async { while pools.join_next().await.is_some() {} } => {}
            never = signals.watch() => match never {},
        }
        // 3. The pools held the last handles, so the returner ends when all is handed back.
        if timeout(CLOSE_WITHIN, closing.join_next()).await.is_err() {
            warn!("Not all handoffs returned; the server redelivers them after ack_wait.");
        }
        // 4. The helpers, then the connection with what is still in its buffers.
        parts.end().await;
        close(&self.broker).await;
        match failure {
            None => {
                info!("Stopped.");
                Ok(String::new())
            }
            Some(part) => Err(Error::Part(part)),
        }
    }

    fn desk(&self, bundle: &Bundle, breakers: watch::Sender<Breakers>) -> Result<Desk, Error> {
        let storage = Storage::new(
            Arc::clone(&self.broker),
            Breaker::new(Blocker::Storage, breakers.clone(), Arc::clone(&self.health)),
            self.provisioned.answers_kept.unwrap_or(streams::ANSWERS_KEPT),
        );
        let around = Surroundings {
            bundle,
            storage: &storage,
            health: &self.health,
            metrics: &self.metrics,
            breakers,
        };
        Ok(Desk {
            bench: Arc::new(bench::build(&self.config, &around)?),
            storage: storage.clone(),
            instance: self.config.instance.clone(),
            policy: Arc::new(Policy {
                trusted_producers: self.config.security.trusted_producers.clone(),
                reply_prefixes: self.config.security.reply_prefixes.clone(),
                answers_kept: storage.answers_kept(),
            }),
            cancels: Cancels::default(),
            metrics: Arc::clone(&self.metrics),
            max_attempts: self.config.worker.max_attempts.get(),
            max_turn: self.config.agent.max_turn,
        })
    }

    /// Starts the helpers. Whoever sees this instance as ready can find it, ask it and cancel what it does, so the
    /// subscriptions for that are made, and known to the server, before this returns.
    async fn start_parts(&self, parts: &mut Parts, desk: &Desk, card: &Card) -> Result<(), Error> {
        let (broker, instance) = (Broker::clone(&self.broker), self.config.instance.clone());
        let (metrics, stop) = (Arc::clone(&self.metrics), parts.stop.clone());
        let presence = Presence::register(card.clone(), &broker).await?;
        parts.spawn_endless(presence.serve(stop.clone()));
        let cancels = broker.client.subscribe(Pattern::Cancels.to_string()).await?;
        broker.client.flush().await?;
        let listening = desk.cancels.clone().listen(
            cancels,
            broker.client.clone(),
            instance.clone(),
            metrics,
            stop.clone(),
        );
        parts.spawn_endless(listening);
        let net = dead::Net {
            storage: desk.storage.clone(),
            role: self.config.role,
            policy: Arc::clone(&desk.policy),
            instance,
            metrics: Arc::clone(&self.metrics),
        };
        let schedule = dead::Schedule { every: self.config.worker.sweep_every, ack_wait: self.ack_wait() };
        parts.spawn_endless(dead::run_mover(net.clone(), stop.clone()));
        parts.spawn_endless(dead::run_sweeper(net, schedule, stop.clone()));
        parts.spawn_endless(watch_connection(broker, Arc::clone(&self.health), stop.clone()));
        // Whoever did not answer is looked for until there is an answer again.
        let (bench, ended) = (Arc::clone(&desk.bench), stop.clone());
        parts.spawn_endless(async move {
            bench.inference.breaker.clone().watch(|| bench.inference.is_there(), ended).await;
        });
        let (storage, role) = (desk.storage.clone(), self.config.role);
        parts.spawn_endless(storage.clone().watch_streams(role, stop.clone()));
        let ended = stop.clone();
        parts.spawn_endless(async move {
            storage.breaker().clone().watch(|| storage.is_back(role), ended).await;
        });
        let bench = Arc::clone(&desk.bench);
        parts.spawn_endless(async move {
            bench.tools.breaker().clone().watch(|| bench.tools.is_there(), stop).await;
        });
        Ok(())
    }

    fn start_pools(
        &self,
        desk: &Arc<Desk>,
        returner: &Returner,
        gate: &Gate,
        pulling: &CancellationToken,
        hurry: &CancellationToken,
    ) -> JoinSet<()> {
        let around =
            Around { broker: &self.broker, returner, gate, health: &self.health, metrics: &self.metrics };
        let mut pools = JoinSet::new();
        for (&kind, &slots) in &self.config.worker.slots {
            let pool = Pool::new(kind, slots, self.ack_wait(), &around);
            let desk = Arc::clone(desk);
            let work = move |delivery| handoff::live(Arc::clone(&desk), delivery);
            let (stop, hurry, grace) = (pulling.clone(), hurry.clone(), self.config.worker.grace);
            pools.spawn(async move { pool.run(work, stop, hurry, grace).await });
        }
        pools
    }

    fn ack_wait(&self) -> Duration {
        self.provisioned.ack_wait.unwrap_or(self.config.worker.ack_wait)
    }

    fn card(&self, bundle: &Bundle, http: Option<String>) -> Card {
        Card {
            instance: self.config.instance.clone(),
            role: self.config.role,
            slots: self.config.worker.slots.iter().map(|(kind, slots)| (*kind, slots.get())).collect(),
            started_at: Timestamp::now(),
            bundle: bundle.hash.clone(),
            model_route: route(&self.config),
            http,
            health: Arc::clone(&self.health),
            metrics: Arc::clone(&self.metrics),
        }
    }
}

/// Readiness follows the connection.
async fn watch_connection(broker: Broker, health: Arc<Health>, stop: CancellationToken) {
    const LOOK_EVERY: Duration = Duration::from_millis(250);
    while timeout(LOOK_EVERY, stop.cancelled()).await.is_err() {
        match broker.client.connection_state() {
            async_nats::connection::State::Connected => health.clear(Blocker::Nats),
            async_nats::connection::State::Pending | async_nats::connection::State::Disconnected => {
                health.block(Blocker::Nats, "the connection to NATS is lost");
            }
        }
    }
}

async fn close(broker: &Broker) {
    match timeout(CLOSE_WITHIN, broker.client.flush()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error = %Chain(&error), "Last messages may not have been sent."),
        Err(_) => warn!("Last messages not sent in time."),
    }
    match timeout(CLOSE_WITHIN, broker.client.drain()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error = %Chain(&error), "Connection not closed cleanly."),
        Err(_) => warn!("Connection not closed in time."),
    }
}
