//! Assembles the orchestrator: serves both listeners, runs the background work, shuts down.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use broker::{Chain, ConnectError, OnDemand};
use secrets::signing_key;
use settings::Report;
use tokio::{
    net::TcpListener,
    select,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    config::Config,
    direct::Direct,
    egress::{self, Egress},
    gateway::{CallError, Gateway},
    health,
    keys::Keys,
    metrics::Metrics,
    rate_limits::RateLimits,
    revocations,
    schedules::Schedules,
    server,
    state::App,
    turns::Turns,
};

/// How long the start waits until answers are read. Afterwards the API is served without chats.
const START_TIMEOUT: Duration = Duration::from_secs(3);
/// How long streams get to tell their clients that they end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);
const TIDY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listening on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error("connecting to NATS")]
    Nats(#[from] ConnectError),
    #[error("setting up the client of the gateway")]
    Gateway(#[source] mcp::Error),
    #[error("setting up the client of the model servers")]
    Models(#[source] reqwest::Error),
    #[error("calling the gateway")]
    Call(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("setting up the clients of external providers")]
    Egress(#[source] reqwest::Error),
    #[error(transparent)]
    SigningKey(#[from] signing_key::Error),
    #[error("cannot install signal handlers")]
    Signals(#[source] std::io::Error),
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        Self::Call(Box::new(error))
    }
}

/// Runs the orchestrator until SIGTERM or SIGINT.
pub async fn run(config: Config) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let mut signals = stop_on_signal(&stop)?;
    // Boxed, since the future is large.
    let served = Box::pin(serve(config, stop)).await;
    signals.shutdown().await;
    served
}

/// Reaches NATS and the gateway.
pub async fn check(config: &Config) -> Report {
    let mut report = Report::default();
    match broker::connect(&config.nats.options).await {
        Ok(broker) => {
            let url = broker::redact_url(&config.nats.options.url);
            report.good("nats", format!("{url}, nats-server {}", broker.client.server_info().version));
        }
        Err(error) => report.failed("nats", Chain(&error), "Start nats-server, or correct nats.url."),
    }
    if let Some(file) = &config.nats.signing_key_file {
        match signing_key::read(file) {
            Ok(_) => report.good("signing", file.display()),
            Err(error) => report.misconfigured("signing", &error, "Correct nats.signing_key_file."),
        }
    }
    let url = &config.gateway.url;
    match Gateway::new(&config.gateway) {
        Err(error) => report.misconfigured("gateway", &error, ""),
        Ok(gateway) => match gateway.tools().await {
            Ok(tools) => report.good("gateway", format!("{url}, {} tools", tools.len())),
            Err(error) => report.failed(
                "gateway",
                format!("{url}: {}", Chain(&error)),
                "Start cynode-gateway, correct gateway.url, or issue a token with `cynodectl tokens issue \
                 orchestrator`.",
            ),
        },
    }
    report
}

async fn serve(config: Config, stop: CancellationToken) -> Result<(), Error> {
    let key = config.nats.signing_key_file.as_deref().map(signing_key::read).transpose()?;
    let nats = Arc::new(OnDemand::new(config.nats.options.clone()));
    nats.connect_at_start().await?;
    let gateway = Gateway::new(&config.gateway).map_err(Error::Gateway)?;
    let (metrics, tasks) = (Arc::<Metrics>::default(), TaskTracker::new());
    let closing = CancellationToken::new();
    let direct = Direct::new(&config.direct, config.chat.keep_alive, metrics.clone(), closing.clone());
    let direct = direct.map_err(Error::Models)?;
    let egress = Egress::new(config.egress.clone(), gateway.clone(), metrics.clone());
    let egress = Arc::new(egress.map_err(Error::Egress)?);
    let app = Arc::new(App {
        keys: Keys::new(gateway.clone(), config.chat.key_cache),
        limits: RateLimits::new(config.rate_limits, config.chat.max_streams),
        turns: Turns::new(
            gateway.clone(),
            nats.clone(),
            key,
            metrics.clone(),
            tasks.clone(),
            config.chat.resend_lost,
        ),
        direct,
        nats,
        gateway,
        metrics,
        stop: stop.clone(),
        closing,
        config,
    });
    let clients = listen(app.config.api.listen).await?;
    let administrators = listen(app.config.admin.listen).await?;
    let address = clients.local_addr().map_err(|error| Error::Listen(app.config.api.listen, error))?;
    let admin_address =
        administrators.local_addr().map_err(|error| Error::Listen(app.config.admin.listen, error))?;

    // Answers are recorded until the last request has ended.
    let (background, ended) = (TaskTracker::new(), CancellationToken::new());
    background.spawn(app.turns.clone().run(app.config.chat.sweep_every, ended.clone()));
    background.spawn(maintain(app.clone(), ended.clone()));
    let schedules = Schedules {
        turns: app.turns.clone(),
        gateway: app.gateway.clone(),
        nats: app.nats.clone(),
        metrics: app.metrics.clone(),
    };
    background.spawn(schedules.run(app.config.chat.sweep_every, stop.clone()));
    background.close();
    if timeout(START_TIMEOUT, app.turns.wait_until_ready()).await.is_err() {
        warn!("Answers cannot be read: NATS or its streams are missing. Chats are refused until then.");
    }
    let servers = TaskTracker::new();
    let limits = app.config.connections;
    if let Some(configured) = egress.address() {
        let agents = listen(configured).await?;
        let egress_address = agents.local_addr().map_err(|error| Error::Listen(configured, error))?;
        let providers = egress.names().join(", ");
        info!(%egress_address, providers, "Egress ready.");
        servers.spawn(listener::serve(
            agents,
            egress::router(app.clone(), egress.clone()),
            limits,
            stop.clone(),
        ));
    }
    info!(%address, %admin_address, "Ready.");

    servers.spawn(listener::serve(clients, server::router(app.clone()), limits, stop.clone()));
    servers.spawn(listener::serve(administrators, health::router(app.clone()), limits, stop.clone()));
    servers.close();
    tasks.close();
    stop.cancelled().await;
    info!("Stopping: no new requests; running requests may finish.");
    if timeout(app.config.grace, servers.wait()).await.is_err() {
        warn!(grace = ?app.config.grace, "Requests running at the shutdown deadline; streams are ended.");
        app.closing.cancel();
    }
    let rest = async {
        servers.wait().await;
        tasks.wait().await;
        egress.drain().await;
        ended.cancel();
        background.wait().await;
    };
    if timeout(CLOSE_TIMEOUT, rest).await.is_err() {
        warn!("Requests dropped; their answers are stored by another orchestrator, or after the next start.");
    }
    Ok(())
}

/// Forgets revoked keys and idle callers, until `stop` is cancelled.
async fn maintain(app: Arc<App>, stop: CancellationToken) {
    let tidy = async {
        let mut ticks = interval(TIDY_INTERVAL);
        loop {
            select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => app.limits.drop_idle(),
            }
        }
    };
    tokio::join!(revocations::follow(&app.nats, &app.keys, &stop), tidy);
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| Error::Listen(address, error))
}

/// Cancels `stop` at SIGTERM and SIGINT. The caller ends the tasks that wait for them.
fn stop_on_signal(stop: &CancellationToken) -> Result<JoinSet<()>, Error> {
    let mut signals = JoinSet::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut received = signal(kind).map_err(Error::Signals)?;
        let stop = stop.clone();
        signals.spawn(async move {
            received.recv().await;
            stop.cancel();
        });
    }
    Ok(signals)
}
