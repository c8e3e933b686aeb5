//! Starts every part of a node in order, runs until a signal, and stops them in order.

mod check;
mod provision;
mod start;

pub use check::check;

use std::{net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration};

use broker::{Broker, Chain, ConnectError, ProvisionError};
use intake::{Gate, Pool, PoolOptions, PoolResources, Returner, Slots};
use mcp::Client;
use sandbox::Host;
use subjects::{InstanceId, JobId, NodeId, Pattern, Subject, Timestamp, streams};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    Breaker, Streams,
    cancels::RunningJobs,
    config::Config,
    engines::Engines,
    health::{Blocker, Health},
    http,
    job::{self, Delivery, JobRunner, Jobs},
    metrics::Metrics,
    orders::OrderFile,
    presence::{NodeInfo, Presence},
    queue::{OtherNodes, queues},
    tools::{self, JobTools},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A piece of an artifact in base64, with its JSON.
const MAX_RESULT_BYTES: usize = 4 << 20;
/// Time limit for each of the last steps of a shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Limits of the listener for probes and metrics.
const PROBE_LIMITS: listener::Limits = listener::Limits {
    max: 64,
    header_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(60),
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    #[error("opening the node's folder")]
    Host(#[source] sandbox::HostError),
    #[error("removing what an earlier process of this node left")]
    Reconcile(#[source] std::io::Error),
    #[error("no sandbox engine is usable: {0}")]
    NoEngine(String),
    #[error("setting up the tools of jobs")]
    Tools(#[from] tools::Error),
    #[error("listening on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error("setting up the client of the gateway")]
    Gateway(#[source] mcp::Error),
    #[error("subscribing to cancels")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("the connection to NATS was lost during start-up")]
    Flush(#[from] async_nats::client::FlushError),
    #[error("installing signal handlers")]
    Signals(#[source] std::io::Error),
}

/// Runs jobs until SIGTERM or SIGINT. A second signal ends the grace period at once.
pub async fn run(config: Config) -> Result<(), Error> {
    let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
    let mut signals = listen_for_signals(&stop, &hurry)?;
    let (health, metrics) = (Arc::new(Health::starting()), Arc::<Metrics>::default());
    metrics.slots.set(config.node.slots.into());
    let (background, ended) = (TaskTracker::new(), CancellationToken::new());
    let listener = http::listen(config.admin).await.map_err(|error| Error::Listen(config.admin, error))?;
    let admin_address =
        listener.local_addr().map_err(|error| Error::Listen(config.admin, error))?.to_string();
    let router = http::router(Arc::clone(&health), Arc::clone(&metrics));
    background.spawn(listener::serve(listener, router, PROBE_LIMITS, ended.clone()));
    let started = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        started = start::start(&config, &health) => Some(started?),
    };
    if let Some((host, engines, broker)) = started {
        let (config, broker) = (Arc::new(config), Arc::new(broker));
        let node = Node { config, admin_address, host, engines, broker, health, metrics };
        node.serve(&background, &stop, &hurry, &ended).await?;
    } else {
        info!("Stopped before the node had started.");
    }
    ended.cancel();
    background.close();
    if timeout(CLOSE_TIMEOUT, background.wait()).await.is_err() {
        warn!("Background tasks not ended in time.");
    }
    signals.shutdown().await;
    Ok(())
}

fn gateway(config: &Config) -> Result<Client, Error> {
    Client::new(mcp::Options {
        url: config.gateway.url.clone(),
        token_file: config.gateway.token_file.clone(),
        connect_timeout: CONNECT_TIMEOUT,
        call_timeout: config.gateway.timeout,
        max_result_bytes: MAX_RESULT_BYTES,
        fast_path: true,
        // The lease of a job names its memory profile.
        profile: None,
    })
    .map_err(Error::Gateway)
}

/// Checks whether the gateway accepts this node's token, and repeats the check until it does.
async fn watch_token(token: &Breaker, gateway: &Client, background: &TaskTracker, ended: &CancellationToken) {
    // A gateway that is away says nothing about the token.
    if let Ok(Err(error @ (mcp::Error::Unauthorized(_) | mcp::Error::Token(..)))) =
        timeout(CONNECT_TIMEOUT, gateway.tools()).await
    {
        token.trip(&format!("the gateway cannot be asked with this node's token: {}", Chain(&error)));
    }
    let (watched, gateway, ended) = (token.clone(), gateway.clone(), ended.clone());
    let probe = move || {
        let (token, gateway) = (watched.clone(), gateway.clone());
        async move {
            // Without the lease of a job, the gateway may refuse the rest.
            if let Ok(_) | Err(mcp::Error::Rejected { .. }) = gateway.tools().await {
                token.record_success();
            }
            // Nothing has to be tried with a job.
            false
        }
    };
    let watched = token.clone();
    background.spawn(async move { watched.watch(probe, ended).await });
}

struct Node {
    config: Arc<Config>,
    admin_address: String,
    host: Arc<Host>,
    engines: Engines,
    broker: Arc<Broker>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl Node {
    async fn serve(
        self,
        background: &TaskTracker,
        stop: &CancellationToken,
        hurry: &CancellationToken,
        ended: &CancellationToken,
    ) -> Result<(), Error> {
        let (breakers, gate) = Gate::new();
        let breaker = Breaker::new(Blocker::Storage, breakers.clone(), Arc::clone(&self.health));
        let audit = Breaker::new(Blocker::Audit, breakers.clone(), Arc::clone(&self.health));
        let machine = Breaker::new(Blocker::Machine, breakers.clone(), Arc::clone(&self.health));
        let streams = Streams::new(Arc::clone(&self.broker), breaker.clone());
        let (tried, trying) = (machine.clone(), ended.clone());
        // Only a job shows whether the machine can run jobs again: one is tried from time to time.
        background.spawn(async move { tried.watch(|| std::future::ready(true), trying).await });
        self.watch_streams(&streams, breaker, background, ended);
        let gateway = gateway(&self.config)?;
        let token = Breaker::new(Blocker::Token, breakers.clone(), Arc::clone(&self.health));
        watch_token(&token, &gateway, background, ended).await;

        let (running, instance) = (RunningJobs::default(), self.instance());
        let requests = self.broker.client.subscribe(Pattern::JobCancels.to_string()).await?;
        self.broker.client.flush().await?;
        let following =
            running.clone().follow(requests, streams.clone(), Arc::clone(&self.broker), ended.clone());
        background.spawn(following);
        let ((drain_by, drained), others) = (watch::channel(None), OtherNodes::default());
        let images: Vec<String> =
            self.config.sandbox.images.iter().map(|image| image.digest.clone()).collect();
        let until_ordered = breakers.hold();
        let presence = Presence {
            info: self.info(&instance, &images),
            client: self.broker.client.clone(),
            health: Arc::clone(&self.health),
            running: running.clone(),
            breakers,
            drain_by,
            others: others.clone(),
        };

        let tools = JobTools::open(&self.config, gateway.clone(), background, ended).await?;
        let tools = Arc::new(tools);
        tools.follow(&self.broker, background, ended);
        tools.watch_audit(&audit, background, ended);
        let runner = Arc::new(JobRunner {
            tools: Arc::clone(&tools),
            streams,
            node: self.config.node.id.clone(),
            instance,
            engines: self.engines.offered.clone(),
            images,
            gateway,
            patience: self.config.gateway.patience,
            running,
            drain_by: drained,
            others,
            machine,
            token,
            metrics: Arc::clone(&self.metrics),
        });
        self.health.unset(&Blocker::Starting);
        let kept = OrderFile::new(&self.config.node.data, self.config.node.id.clone());
        background.spawn(presence.run(kept, until_ordered, ended.clone()));
        let served = self.run_pools(runner, &gate, (stop, hurry), (background, ended)).await;
        // What is left would have to be removed by the next start.
        self.host.settled().await;
        if timeout(CLOSE_TIMEOUT, tools.close(&self.broker)).await.is_err() {
            warn!("Audit not shipped in time; the next start of the node ships the rest.");
        }
        served
    }

    /// Pulls and runs jobs until `stop`; then lets those that run finish within the grace period.
    async fn run_pools(
        &self,
        runner: Arc<JobRunner>,
        gate: &Gate,
        (stop, hurry): (&CancellationToken, &CancellationToken),
        (background, ended): (&TaskTracker, &CancellationToken),
    ) -> Result<(), Error> {
        let (returner, returning) =
            Returner::<Jobs>::new(self.broker.client.clone(), Arc::clone(&self.metrics));
        let mut closing = JoinSet::new();
        closing.spawn(returning);
        let engines: Vec<_> = self.engines.offered.keys().copied().collect();
        let node = &self.config.node;
        let queues = queues(&node.id, &node.pool, &engines, &runner.images);
        let ack_waits = provision::consumers(&self.broker, &self.config, &queues).await?;
        let (broker, config) = (Arc::clone(&self.broker), Arc::clone(&self.config));
        let health = Arc::clone(&self.health);
        background.spawn(provision::restore_consumers(broker, config, queues.clone(), health, ended.clone()));
        let one = NonZeroUsize::MIN;
        let slots = Slots::shared(
            NonZeroUsize::new(usize::try_from(node.slots).unwrap_or(usize::MAX)).unwrap_or(one),
            NonZeroUsize::new(queues.len()).unwrap_or(one),
        );
        let mut pools = JoinSet::new();
        for (queue, ack_wait) in queues.into_iter().zip(ack_waits) {
            let options = PoolOptions {
                stream: streams::JOBS.to_owned(),
                consumer: streams::node_consumer_name(&queue.subject()),
                blocker: Blocker::Pull(queue.to_string()),
                kind: queue,
                slots: slots.clone(),
                ack_wait,
            };
            let resources = PoolResources {
                broker: &self.broker,
                returner: &returner,
                gate,
                health: &self.health,
                metrics: &self.metrics,
            };
            let pool = Pool::new(options, &resources);
            let runner = Arc::clone(&runner);
            let work = move |delivery: Delivery| job::run(Arc::clone(&runner), delivery);
            let (stop, hurry, grace) = (stop.clone(), hurry.clone(), node.grace);
            pools.spawn(async move { pool.run(work, stop, hurry, grace).await });
        }
        // From here on only the pools hold these handles, so that they are dropped when the last pool ends.
        drop((runner, returner));
        let address = &self.admin_address;
        let slots = node.slots;
        info!(node = %node.id, pool = %node.pool, slots, ?engines, admin_address = address, "Ready.");
        stop.cancelled().await;
        self.health.set(Blocker::Stopping, "stopping");
        info!(grace = ?node.grace, "Stopping: letting jobs finish.");
        while pools.join_next().await.is_some() {}
        if timeout(CLOSE_TIMEOUT, closing.join_next()).await.is_err() {
            warn!("Not all jobs handed back; the server redelivers them after ack_wait.");
        }
        info!("Stopped.");
        Ok(())
    }

    fn watch_streams(
        &self,
        streams: &Streams,
        breaker: Breaker,
        background: &TaskTracker,
        ended: &CancellationToken,
    ) {
        const NEEDED: [&str; 2] = [streams::JOB_RUNS, streams::JOB_LOGS];
        let (probed, watched) = (streams.clone(), streams.clone());
        let (stop, node) = (ended.clone(), self.config.node.id.clone());
        background.spawn(async move {
            let probe = || check_available(&probed, &NEEDED, &node);
            breaker.watch(probe, stop).await;
        });
        let stop = ended.clone();
        background.spawn(async move { watched.watch(&NEEDED, |_, _| {}, stop).await });
    }

    fn instance(&self) -> InstanceId {
        self.config.node.id.new_instance()
    }

    fn info(&self, instance: &InstanceId, images: &[String]) -> NodeInfo {
        let node = &self.config.node;
        NodeInfo {
            node: node.id.clone(),
            instance: instance.clone(),
            pool: node.pool.clone(),
            labels: node.labels.clone(),
            engines: self.engines.status.clone(),
            images: images.to_vec(),
            slots: node.slots,
            started_at: Timestamp::now(),
        }
    }
}

async fn check_available(streams: &Streams, needed: &[&'static str], node: &NodeId) -> bool {
    let unused = Subject::JobJournal(JobId::now(), node.clone());
    streams.check_available(needed, &unused).await
}

/// Cancels `stop` at the first SIGTERM or SIGINT, and `hurry` at the second.
fn listen_for_signals(stop: &CancellationToken, hurry: &CancellationToken) -> Result<JoinSet<()>, Error> {
    let mut signals = JoinSet::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut received = signal(kind).map_err(Error::Signals)?;
        let (stop, hurry) = (stop.clone(), hurry.clone());
        signals.spawn(async move {
            while received.recv().await.is_some() {
                if stop.is_cancelled() {
                    hurry.cancel();
                }
                stop.cancel();
            }
        });
    }
    Ok(signals)
}
