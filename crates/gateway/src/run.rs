//! Assembles the gateway: opens the store, serves both listeners, runs maintenance, shuts down.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use broker::{ConnectError, OnDemand};
use sea_orm::DbErr;
use secrets::signing_key;
use tokio::{
    net::TcpListener,
    select,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info, warn};
use uuid::Uuid;

use access::{
    admin_token::{self, Adoption},
    leases::{self, Leases},
    unauthenticated::UnauthenticatedLimiter,
};
use admin::Admin;
use audit::{Announcement, Ledger, Record, Seal, Sealed};
use control::{LeaseIssuer, Memories, Sandboxes, ToolError};
use registry::{catalogue::CatalogueCache, upstreams::Upstreams};
use store::{Checkpointer, Outbox, Store, clock};

use crate::{
    calls::{Calls, Limits, ToolResources},
    config::{Cli, Config},
    data_lock::{self, DataLock},
    edge_audit::EdgeAudit,
    front::Front,
    health::{self, Watched},
    jobs::{ChainReader, PresenceResponder},
    lost::Lost,
    metrics::Metrics,
    relay::Relay,
    reload::ModifiedAt,
    workflow_counter::WorkflowCounter,
    workflows::RunnerQueue,
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Locked(#[from] data_lock::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the store is not available")]
    Query(#[from] DbErr),
    #[error("listening on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error(transparent)]
    AdminToken(#[from] admin_token::Error),
    #[error("sealing the audit")]
    Seal(#[from] audit::SealError),
    #[error("connecting to NATS")]
    Nats(#[from] ConnectError),
    #[error(transparent)]
    SigningKey(#[from] signing_key::Error),
    #[error("cannot install signal handlers")]
    Signals(#[source] std::io::Error),
}

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(60);
/// How often counts of refused requests are checked for being due.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long leases are listed after their end.
const KEEP_ENDED_LEASES: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long calls to external providers are kept after their end. Their usage is kept permanently.
const KEEP_ENDED_PROVIDER_CALLS: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Runs the gateway until SIGTERM or SIGINT.
pub async fn run(cli: Cli, config: Config) -> Result<(), Error> {
    let stop = CancellationToken::new();
    let mut signals = stop_on_signal(&stop)?;
    // Boxed, since the future is large.
    let served = Box::pin(serve(cli, config, stop)).await;
    signals.shutdown().await;
    served
}

async fn serve(cli: Cli, config: Config, stop: CancellationToken) -> Result<(), Error> {
    let modified_at = ModifiedAt::of(&config);
    // Before the store is opened, because recovery considers every call in flight as lost.
    let lock = DataLock::acquire(&config.data, store::sqlite_file(&config.store.url).as_deref())?;
    let store = Store::open(&config.store).await?;
    // SQLite is used by one gateway only, so every call in flight there is of an earlier process.
    let recovered = audit::recover(&store, !store.is_postgres()).await?;
    if recovered > 0 {
        warn!(calls = recovered, "Calls interrupted by the last shutdown recorded in the audit.");
    }
    control::seed(&store).await?;
    let background = TaskTracker::new();
    if let Some(checkpointer) = Checkpointer::for_store(&store) {
        background.spawn(checkpointer.run(stop.clone()));
    }
    let adoption = config.admin.token().adopt(&store).await?;
    let signing_key_file = config.nats.as_ref().and_then(|nats| nats.signing_key_file.as_deref());
    let signing_key = signing_key_file.map(signing_key::read).transpose()?;
    let nats = config.nats.as_ref().map(|nats| Arc::new(OnDemand::new(nats.options.clone())));
    if let Some(nats) = &nats {
        nats.connect_at_start().await?;
    }
    let seal = Seal::open(&config.audit.signing_key_file, config.audit.head_file.clone(), nats.clone())?;
    seal.prepare().await?;
    let seal = Arc::new(seal);
    let metrics = Arc::<Metrics>::default();
    let (ledger, writing) =
        Ledger::start_with(store.clone(), config.audit.fast_append, metrics.audit.clone());
    background.spawn(writing);
    record_revoked(&ledger, &adoption).await;
    let (upstreams, watching) =
        Upstreams::start(store.clone(), config.upstreams, config.calls.max_result_bytes, stop.clone());
    background.spawn(watching);
    let limits =
        Limits { max_result_bytes: config.calls.max_result_bytes, keep_keys: config.calls.keep_keys };
    let tools = control::all().into_iter().filter(|tool| nats.is_some() || !tool.needs_nats).collect();
    let catalogue = Arc::new(CatalogueCache::new(tools));
    let outbox = Arc::new(Outbox::new(nats.is_some()));
    if let Some(nats) = &nats {
        let relay = Relay::new(store.clone(), nats.clone(), outbox.clone(), metrics.clone());
        background.spawn(relay.run(stop.clone()));
        let grace = config.audit.node_grace;
        let edge_audit = EdgeAudit::new(store.clone(), nats.clone(), metrics.clone(), grace);
        background.spawn(edge_audit.run(stop.clone()));
    }
    let handoff_key = signing_key_file.map(signing_key::read).transpose()?;
    let sandboxes = Sandboxes::new(config.sandbox, outbox.clone(), nats.clone(), stop.clone());
    let sandboxes = Arc::new(sandboxes.signing_with(handoff_key));
    let memories = Arc::new(Memories::new(config.memory));
    let issuer = Arc::new(LeaseIssuer {
        outbox,
        key: signing_key::read_or_create(&config.leases.signing_key_file)?,
        lifetime: config.leases.lifetime,
        renewable_for: config.leases.renewable_for,
    });
    if let Some(nats) = &nats {
        let (store, nats) = (store.clone(), nats.clone());
        let responder = PresenceResponder { store: store.clone(), nats: nats.clone() };
        background.spawn(responder.run(stop.clone()));
        let queue = RunnerQueue { nats: nats.clone(), ack_wait: config.workflows.ack_wait };
        background.spawn(queue.run(stop.clone()));
        let counter = WorkflowCounter::open(store.clone(), metrics.clone()).await?;
        background.spawn(counter.run(stop.clone()));
        let (sandboxes, leases) = (sandboxes.clone(), issuer.clone());
        let lost = Lost { store: store.clone(), sandboxes: sandboxes.clone(), leases: leases.clone() };
        background.spawn(lost.run(stop.clone()));
        background.spawn(ChainReader { store, nats, sandboxes, leases }.run(stop.clone()));
    }
    let (mode, lifetime) = (config.leases.mode, config.leases.lifetime);
    let leases = Leases::open(&store, mode, lifetime, &issuer.key.public_key()).await?;
    let calls = Arc::new(Calls::new(
        store.clone(),
        catalogue.clone(),
        ledger.clone(),
        upstreams.clone(),
        ToolResources { leases: issuer.clone(), sandboxes: sandboxes.clone(), memories: memories.clone() },
        limits,
    ));
    let unauthenticated = UnauthenticatedLimiter::new(store.clone(), ledger.clone(), config.unauthenticated);
    let unauthenticated = Arc::new(unauthenticated);
    let front = Front::new(store.clone(), calls.clone(), leases, unauthenticated.clone(), &config);
    let admin = Admin::new(admin::Resources {
        store: store.clone(),
        ledger: ledger.clone(),
        catalogue,
        upstreams: upstreams.clone(),
        seal: seal.clone(),
        leases: issuer,
        sandboxes,
        memories,
        nats,
        signing_key,
        unauthenticated: unauthenticated.clone(),
        settings: config.admin.clone(),
        allow_stdio: config.upstreams.stdio,
        stop: stop.clone(),
    });
    let watched = Watched::new(store.clone(), upstreams.clone(), metrics, stop.clone());
    let administrators = listen(config.admin.listen).await?;
    let agents = listen(config.mcp.listen).await?;
    let address = agents.local_addr().map_err(|error| Error::Listen(config.mcp.listen, error))?;
    let admin_address =
        administrators.local_addr().map_err(|error| Error::Listen(config.admin.listen, error))?;
    let store_url = broker::redact_url(&config.store.url);
    info!(%address, %admin_address, seal = seal.public_key(), store = store_url, "Ready.");

    let servers = TaskTracker::new();
    servers.spawn(listener::serve(agents, front.clone().router(), config.connections, stop.clone()));
    servers.spawn(listener::serve(
        administrators,
        admin.router().merge(health::router(watched)),
        config.connections,
        stop.clone(),
    ));
    servers.close();
    let maintenance = run_maintenance(&config, &store, &ledger, &front, &unauthenticated, &seal, &stop);
    let reloading = crate::reload::watch(cli, &config, modified_at, &front, &stop);
    select! {
        () = async { tokio::join!(maintenance, reloading); } => {}
        () = servers.wait() => {}
    }
    info!("Stopping: no new calls; running calls may finish.");
    let ended = async {
        servers.wait().await;
        calls.drain().await;
    };
    if timeout(config.grace, ended).await.is_err() {
        warn!(
            grace = ?config.grace,
            "Calls still running at the shutdown deadline; the next start records them."
        );
    }
    upstreams.close_all().await;
    unauthenticated.report_all().await;
    // These hold the last handles on the ledger; the writer ends once it has written its remaining messages.
    drop((front, calls, ledger, upstreams, unauthenticated));
    background.close();
    if timeout(config.grace, background.wait()).await.is_err() {
        error!("Audit still being written at the shutdown deadline.");
    }
    if let Err(error) = seal.seal_head(&store, Sealed::default()).await {
        warn!(%error, "Last audit head not sealed.");
    }
    store.close().await;
    drop(lock);
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| Error::Listen(address, error))
}

/// Seals the audit, reports refused requests and maintains the store periodically, until `stop` is cancelled.
async fn run_maintenance(
    config: &Config,
    store: &Store,
    ledger: &Ledger,
    front: &Front,
    unauthenticated: &UnauthenticatedLimiter,
    seal: &Seal,
    stop: &CancellationToken,
) {
    let mut seals = interval(config.audit.seal_every);
    let mut rest = interval(MAINTENANCE_INTERVAL);
    let mut reports = interval(REPORT_INTERVAL);
    let mut sealed = Sealed::default();
    loop {
        select! {
            () = stop.cancelled() => return,
            _ = seals.tick() => match seal.seal_head(store, sealed).await {
                Ok(now) => sealed = now,
                Err(error) => error!(%error, "Audit head not sealed."),
            },
            _ = reports.tick() => unauthenticated.report().await,
            _ = rest.tick() => {
                front.drop_idle_callers();
                match ledger.end_overdue().await {
                    Ok(0) => {}
                    Ok(calls) => warn!(calls, "Delayed audit rows written."),
                    Err(error) => error!(%error, "Audit rows of completed calls missing; retrying."),
                }
                if let Err(error) = maintain_store(config, store).await {
                    error!(%error, "Store maintenance failed; retrying.");
                }
            }
        }
    }
}

/// Recovers lost calls, deletes expired idempotency keys, leases, memories and calls to providers, and prunes
/// the audit.
async fn maintain_store(config: &Config, store: &Store) -> Result<(), DbErr> {
    let lost = audit::recover(store, false).await?;
    if lost > 0 {
        warn!(calls = lost, "Calls of a stopped gateway recorded in the audit.");
    }
    crate::calls::delete_expired_keys(store).await?;
    leases::delete_ended(store, micros_ago(KEEP_ENDED_LEASES)).await?;
    let lost = control::close_lost_calls(store).await?;
    if lost > 0 {
        warn!(calls = lost, "Abandoned provider calls closed with estimated usage.");
    }
    control::delete_old_calls(store, micros_ago(KEEP_ENDED_PROVIDER_CALLS)).await?;
    match control::delete_expired_memories(store, clock::now()).await {
        Ok(0) => {}
        Ok(memories) => info!(memories, "Expired memories deleted."),
        Err(ToolError::Store(error)) => return Err(error),
        Err(error) => error!(%error, "Expired memories not deleted; retrying."),
    }
    if let Some(keep) = config.audit.keep {
        let gone = audit::prune(store, micros_ago(keep)).await?;
        if gone > 0 {
            info!(rows = gone, "Expired audit rows deleted.");
        }
    }
    Ok(())
}

/// Returns the time a duration ago, in microseconds since 1970.
fn micros_ago(duration: Duration) -> i64 {
    clock::now().saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

/// Writes an audit row for each token that the start revoked. A failure is only logged, because the tokens
/// are already refused.
async fn record_revoked(ledger: &Ledger, adoption: &Adoption) {
    for id in &adoption.revoked {
        info!(id, "Previous admin token revoked.");
        let (call_id, now) = (Uuid::now_v7().to_string(), clock::now());
        let record =
            Record::of_administrator(call_id, now, "admin", &adoption.row.id, None, "admin.token.revoke");
        if ledger.end(record, Announcement::None).await.is_err() {
            error!(id, "Token revocation not recorded.");
        }
    }
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
