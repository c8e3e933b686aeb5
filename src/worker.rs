//! Starts every component of an instance in order, runs until a signal, and stops them in order.

mod background;
mod check;
mod resources;
mod signals;

use std::{sync::Arc, time::Duration};

use background::BackgroundTasks;
use broker::{Broker, Chain, ConnectError, ProvisionError, Provisioned, retry::RetryDelays};
pub use check::check;
use intake::{Breakers, Gate, Pool, PoolOptions, PoolResources, Returner, Slots};
use resources::{ResourceInputs, SharedParts};
use signals::Signals;
use subjects::{
    Pattern, Timestamp,
    streams::{self, Sizing},
};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    admission::Policy,
    cancels::Cancels,
    config::{Backend, Config},
    dead_letters,
    handoff::{self, HandoffRunner, Handoffs},
    inference::Offline,
    instructions::{self, Bundle},
    presence::{self, InstanceInfo, Presence},
    storage::Storage,
    telemetry::{Blocker, Breaker, Health, HttpError, Metrics, Server},
    tools::Allowlist,
};

const FIRST_CONNECT_WAIT: Duration = Duration::from_millis(200);
const MAX_CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Time limit for each of the last steps of a shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why an instance could not start or had to stop.
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
    Resources(#[from] resources::Error),
    #[error("installing signal handlers")]
    Signals(#[source] std::io::Error),
    #[error("worker task ended unexpectedly: {0}")]
    BackgroundTask(String),
}

impl Error {
    /// Returns whether a restart with the same configuration cannot help.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::Instructions(_) | Self::Resources(_))
    }
}

/// Processes handoffs until SIGTERM or SIGINT. A second signal ends the grace period at once.
pub async fn run(config: Config) -> Result<String, Error> {
    let mut signals = Signals::listen()?;
    config.warnings.iter().for_each(|warning| warn!("{warning}"));
    let bundle = Bundle::load(config.role, &config.instructions)?;
    info!(role = %config.role, bundle = %bundle.path.display(), hash = bundle.hash, "Instructions loaded.");
    let health = Arc::new(Health::starting());
    let metrics = Arc::new(Metrics::new());
    let mut tasks = BackgroundTasks::default();
    let http = match config.http {
        Some(address) => {
            let server = Server::bind(address, Arc::clone(&health), Arc::clone(&metrics)).await?;
            let address = server.address().to_string();
            info!(%address, "Serving /healthz, /readyz and /metrics.");
            let stop = tasks.stop.clone();
            tasks.spawn(server.serve(stop));
            Some(address)
        }
        None => None,
    };
    let asked_to_stop = signals.first.clone();
    let started = tokio::select! {
        biased;
        // Cancel-safe: an aborted start leaves nothing that the next start would not create as well.
        () = asked_to_stop.cancelled() => None,
        started = start(&config, &health, &metrics) => Some(started?),
        never = signals.watch() => match never {},
    };
    let Some((broker, provisioned)) = started else {
        info!("Stopped before NATS was reachable.");
        tasks.end().await;
        return Ok(String::new());
    };

    let worker = Worker { config, broker: Arc::new(broker), health, metrics, provisioned };
    worker.serve(tasks, &bundle, http, signals).await
}

async fn start(config: &Config, health: &Health, metrics: &Metrics) -> Result<(Broker, Provisioned), Error> {
    let broker = connect(config, health).await?;
    let provisioned = broker::provision(&broker, config.nats.provision, config.role, sizing(config)).await?;
    report_drift(&provisioned, metrics);
    Ok((broker, provisioned))
}

/// Connects to NATS. Retries while the server is unreachable; fails if it rejects the connection.
async fn connect(config: &Config, health: &Health) -> Result<Broker, ConnectError> {
    let mut waits = RetryDelays::forever(FIRST_CONNECT_WAIT, MAX_CONNECT_WAIT);
    loop {
        match broker::connect(&config.nats.options).await {
            Ok(broker) => {
                health.clear(Blocker::Nats);
                return Ok(broker);
            }
            Err(error) if error.is_transient() => {
                let why = Chain(&error).to_string();
                warn!(why, "NATS not reachable yet; retrying.");
                health.block(Blocker::Nats, why);
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(waits.next_delay().unwrap_or(MAX_CONNECT_WAIT)).await;
    }
}

fn sizing(config: &Config) -> Sizing {
    Sizing {
        replicas: config.nats.replicas,
        ack_wait: config.worker.ack_wait,
        dedupe_window: config.nats.dedupe_window,
    }
}

/// Describes which models answer, for logs and reports.
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

fn report_drift(provisioned: &Provisioned, metrics: &Metrics) {
    metrics.drift.set(i64::try_from(provisioned.drifts.len()).unwrap_or(i64::MAX));
    for drift in &provisioned.drifts {
        warn!(
            %drift,
            "Configuration drift not corrected; change it with the nats CLI, or remove it to have it created \
             again."
        );
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
        mut tasks: BackgroundTasks,
        bundle: &Bundle,
        http: Option<String>,
        mut signals: Signals,
    ) -> Result<String, Error> {
        let (returner, returning) = Returner::new(self.broker.client.clone(), Arc::clone(&self.metrics));
        let mut closing = JoinSet::new();
        closing.spawn(returning);

        let (breakers, gate) = Gate::new();
        let runner = Arc::new(self.handoff_runner(bundle, breakers)?);
        let instance_info = self.instance_info(bundle, http);
        self.start_background_tasks(&mut tasks, &runner, &instance_info).await?;

        let pulling = CancellationToken::new();
        let mut pools = self.start_pools(&runner, &returner, &gate, &pulling, &signals.second);
        // From here on only the pools hold these handles, so that they are dropped when the last pool ends.
        drop((runner, returner));
        self.health.clear(Blocker::Starting);
        instance_info.announce(&self.broker).await;
        info!(
            instance = %self.config.instance,
            role = %self.config.role,
            version = crate::VERSION,
            model = route(&self.config),
            tools = Allowlist::for_role(self.config.role).describe(),
            gateway = self
                .config
                .gateway
                .as_ref()
                .map_or("none: a worker without tools", |gateway| &gateway.url),
            "Ready."
        );

        let asked_to_stop = signals.first.clone();
        let failure = tokio::select! {
            biased;
            // Cancel-safe per docs on `cancelled()`.
            () = asked_to_stop.cancelled() => None,
            // Cancel-safe: a finished task stays in the set until it is joined.
            reason = tasks.failed() => Some(reason),
            // Cancel-safe: the listener buffers signals.
            never = signals.watch() => match never {},
        };

        // 1. Withdraw readiness and stop pulling.
        self.health.block(Blocker::Draining, "draining");
        info!(
            grace = %humantime::format_duration(self.config.worker.grace),
            "Stopping: letting work finish."
        );
        pulling.cancel();
        instance_info.announce(&self.broker).await;
        // 2. Let handoffs finish within the grace period; unfinished ones are dropped and go to the returner.
        tokio::select! {
            () = async { while pools.join_next().await.is_some() {} } => {}
            never = signals.watch() => match never {},
        }
        // 3. The pools held the last handles of the returner, so it ends once everything is handed back.
        if timeout(CLOSE_TIMEOUT, closing.join_next()).await.is_err() {
            warn!("Not all handoffs handed back; the server redelivers them after ack_wait.");
        }
        // 4. Stop the background tasks, then flush and close the connection.
        tasks.end().await;
        close(&self.broker).await;
        match failure {
            None => {
                info!("Stopped.");
                Ok(String::new())
            }
            Some(reason) => Err(Error::BackgroundTask(reason)),
        }
    }

    fn handoff_runner(&self, bundle: &Bundle, breakers: Breakers) -> Result<HandoffRunner, Error> {
        let storage = Storage::new(
            Arc::clone(&self.broker),
            Breaker::new(Blocker::Storage, breakers.clone(), Arc::clone(&self.health)),
            self.provisioned.answers_kept.unwrap_or(streams::ANSWER_RETENTION),
        );
        let inputs = ResourceInputs {
            bundle,
            storage: &storage,
            shared: SharedParts { health: &self.health, metrics: &self.metrics, breakers },
        };
        Ok(HandoffRunner {
            resources: Arc::new(resources::build(&self.config, &inputs)?),
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

    /// Starts the background tasks. The status endpoint and the cancel subscription are registered with the
    /// server before this returns, so that an instance that reports ready can be found, queried and
    /// cancelled.
    async fn start_background_tasks(
        &self,
        tasks: &mut BackgroundTasks,
        runner: &HandoffRunner,
        instance_info: &InstanceInfo,
    ) -> Result<(), Error> {
        let (broker, instance) = (Broker::clone(&self.broker), self.config.instance.clone());
        let (metrics, stop) = (Arc::clone(&self.metrics), tasks.stop.clone());
        let presence = Presence::register(instance_info.clone(), &broker).await?;
        tasks.spawn_endless(presence.serve(stop.clone()));
        let cancels = broker.client.subscribe(Pattern::Cancels.to_string()).await?;
        broker.client.flush().await?;
        let listening = runner.cancels.clone().listen(
            cancels,
            broker.client.clone(),
            instance.clone(),
            metrics,
            stop.clone(),
        );
        tasks.spawn_endless(listening);
        let dead_letter_resources = dead_letters::DeadLetterResources {
            storage: runner.storage.clone(),
            role: self.config.role,
            policy: Arc::clone(&runner.policy),
            instance,
            metrics: Arc::clone(&self.metrics),
        };
        let schedule =
            dead_letters::Schedule { every: self.config.worker.sweep_every, ack_wait: self.ack_wait() };
        tasks.spawn_endless(dead_letters::run_mover(dead_letter_resources.clone(), stop.clone()));
        tasks.spawn_endless(dead_letters::run_sweeper(dead_letter_resources, schedule, stop.clone()));
        tasks.spawn_endless(watch_connection(broker, Arc::clone(&self.health), stop.clone()));
        // Each breaker probes what it guards until it is available again.
        let (resources, ended) = (Arc::clone(&runner.resources), stop.clone());
        tasks.spawn_endless(async move {
            resources.inference.breaker.clone().watch(|| resources.inference.probe(), ended).await;
        });
        let (storage, role) = (runner.storage.clone(), self.config.role);
        tasks.spawn_endless(storage.clone().watch_streams(role, stop.clone()));
        let ended = stop.clone();
        tasks.spawn_endless(async move {
            storage.streams.outages().clone().watch(|| storage.check_available(role), ended).await;
        });
        let resources = Arc::clone(&runner.resources);
        tasks.spawn_endless(async move {
            resources.tools.breaker().clone().watch(|| resources.tools.probe(), stop).await;
        });
        Ok(())
    }

    fn start_pools(
        &self,
        runner: &Arc<HandoffRunner>,
        returner: &Returner<Handoffs>,
        gate: &Gate,
        pulling: &CancellationToken,
        hurry: &CancellationToken,
    ) -> JoinSet<()> {
        let shared = PoolResources {
            broker: &self.broker,
            returner,
            gate,
            health: &self.health,
            metrics: &self.metrics,
        };
        let mut pools = JoinSet::new();
        for (&kind, &slots) in &self.config.worker.slots {
            let options = PoolOptions {
                kind,
                stream: self.broker.layout.handoffs(kind.role()).to_owned(),
                consumer: streams::consumer_name(kind).to_owned(),
                slots: Slots::new(slots),
                ack_wait: self.ack_wait(),
                blocker: Blocker::Pull(kind),
            };
            let pool = Pool::new(options, &shared);
            let runner = Arc::clone(runner);
            let work = move |delivery| handoff::run(Arc::clone(&runner), delivery);
            let (stop, hurry, grace) = (pulling.clone(), hurry.clone(), self.config.worker.grace);
            pools.spawn(async move { pool.run(work, stop, hurry, grace).await });
        }
        pools
    }

    fn ack_wait(&self) -> Duration {
        self.provisioned.ack_wait.unwrap_or(self.config.worker.ack_wait)
    }

    fn instance_info(&self, bundle: &Bundle, http: Option<String>) -> InstanceInfo {
        InstanceInfo {
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

/// Sets readiness from the state of the NATS connection.
async fn watch_connection(broker: Broker, health: Arc<Health>, stop: CancellationToken) {
    const CHECK_INTERVAL: Duration = Duration::from_millis(250);
    while timeout(CHECK_INTERVAL, stop.cancelled()).await.is_err() {
        match broker.client.connection_state() {
            async_nats::connection::State::Connected => health.clear(Blocker::Nats),
            async_nats::connection::State::Pending | async_nats::connection::State::Disconnected => {
                health.block(Blocker::Nats, "the connection to NATS is lost");
            }
        }
    }
}

async fn close(broker: &Broker) {
    match timeout(CLOSE_TIMEOUT, broker.client.flush()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error = %Chain(&error), "Last messages may not have been sent."),
        Err(_) => warn!("Last messages not sent in time."),
    }
    match timeout(CLOSE_TIMEOUT, broker.client.drain()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(error = %Chain(&error), "Connection not closed cleanly."),
        Err(_) => warn!("Connection not closed in time."),
    }
}
