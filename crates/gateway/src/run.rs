//! Everything together: open the store, serve, watch, stop.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use sea_orm::DbErr;
use subjects::audit::{Broken, Chain};
use tokio::{
    net::TcpListener,
    select,
    signal::unix::{SignalKind, signal},
    time::{interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::{
    admin::{self, Admin},
    admin_token::{self, Adopted},
    audit::{self, Ledger, Record, Seal, Sealed, WasBegun},
    calls::{Calls, Limits},
    catalogue::Shelf,
    clock,
    config::{Cli, Config},
    data_lock::{self, DataLock},
    front::Front,
    metrics::Metrics,
    nats::{self, Nats},
    reload::Stamp,
    serve,
    store::{self, Store},
    strangers::Strangers,
    tools,
    upstreams::Upstreams,
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
    #[error("audit verification failed")]
    Audit(#[from] Broken),
    #[error("sealing the audit")]
    Seal(#[from] audit::SealError),
    #[error("connecting to NATS")]
    Nats(#[from] nats::Error),
    #[error("cannot install signal handlers")]
    Signals(#[source] std::io::Error),
}

const TIDY_EVERY: Duration = Duration::from_secs(60);
const REPORT_LOOK_EVERY: Duration = Duration::from_secs(1);
const AT_ONCE: u64 = 1000;

pub async fn run(cli: Cli, config: Config) -> Result<(), Error> {
    let stop = CancellationToken::new();
    stop_on_signal(&stop)?;
    serve(cli, config, stop).await
}

/// Opens the store, brings it to its present shape and follows the audit's chain.
pub async fn check(config: &Config) -> Result<String, Error> {
    let file = store::file(&config.store.url);
    let lock = file.map(|file| DataLock::take(&config.data, Some(&file))).transpose()?;
    let store = Store::open(&config.store).await?;
    let seal = Seal::open(&config.audit.signing_key_file, config.audit.head_file.clone(), None)?;
    let ends = audit::ends(store.read()).await?;
    let key = seal.public_key();
    let heads = seal.heads()?.into_iter().filter(|head| head.is_signed_by(&key)).collect();
    let mut chain = Chain::begin(ends.pruned_seq, &ends.pruned_hash, heads);
    let mut last = ends.pruned_seq;
    loop {
        let rows = audit::rows_after(&store, last, AT_ONCE).await?;
        let Some(row) = rows.last() else { break };
        last = row.seq;
        rows.iter().try_for_each(|row| chain.follow(row))?;
    }
    let (rows, heads) = chain.end()?;
    let tools = tools::all().len();
    store.close().await;
    drop(lock);
    Ok(format!(
        "ok: {rows} audit rows follow each other, {heads} signed heads agree, {tools} tools of our own"
    ))
}

async fn serve(cli: Cli, config: Config, stop: CancellationToken) -> Result<(), Error> {
    let stamp = Stamp::of(&config);
    // Before anything is touched: what follows takes whatever is in flight for left behind.
    let lock = DataLock::take(&config.data, store::file(&config.store.url).as_deref())?;
    let store = Store::open(&config.store).await?;
    // SQLite has one owner, so whatever is in flight there is from a process that is gone.
    let recovered = audit::recover(&store, !store.is_postgres()).await?;
    if recovered > 0 {
        warn!(calls = recovered, "Calls interrupted by the last shutdown recorded in the audit.");
    }
    tools::seed(&store).await?;
    let adopted = config.admin.token().adopt(&store).await?;
    let nats = config.nats.as_ref().map(Nats::open).transpose()?;
    if let Some(nats) = &nats {
        nats.begin().await?;
    }
    let seal = Seal::open(&config.audit.signing_key_file, config.audit.head_file.clone(), nats.clone())?;
    seal.prepare().await?;
    let seal = Arc::new(seal);
    let metrics = Arc::<Metrics>::default();
    let (ledger, writing) = Ledger::start_counting(store.clone(), metrics.clone());
    let background = TaskTracker::new();
    background.spawn(writing);
    record_revoked(&ledger, &adopted).await;
    let (upstreams, looking_after) =
        Upstreams::start(store.clone(), config.upstreams, config.calls.max_result_bytes, stop.clone());
    background.spawn(looking_after);
    let limits =
        Limits { max_result_bytes: config.calls.max_result_bytes, keep_keys: config.calls.keep_keys };
    let calls =
        Arc::new(Calls::new(store.clone(), Shelf::new(tools::all()), ledger, upstreams.clone(), limits));
    let strangers = Arc::new(Strangers::new(store.clone(), calls.ledger.clone(), config.strangers));
    let front = Front::new(store.clone(), calls.clone(), strangers.clone(), &config);
    let parts = admin::Parts {
        store: store.clone(),
        calls: calls.clone(),
        upstreams: upstreams.clone(),
        seal: seal.clone(),
        nats,
        metrics,
        strangers: strangers.clone(),
    };
    let admin = Admin::new(parts, &config, stop.clone());
    let administrators = listen(config.admin.listen).await?;
    let agents = listen(config.mcp.listen).await?;
    let address = agents.local_addr().map_err(|error| Error::Listen(config.mcp.listen, error))?;
    let admin_address =
        administrators.local_addr().map_err(|error| Error::Listen(config.admin.listen, error))?;
    info!(%address, %admin_address, seal = seal.public_key(), store = broker::without_secrets(&config.store.url), "Ready.");

    let servers = TaskTracker::new();
    servers.spawn(serve::serve(agents, front.clone().router(), config.connections, stop.clone()));
    servers.spawn(serve::serve(administrators, admin.router(), config.connections, stop.clone()));
    servers.close();
    let tidying = tidy(&config, &store, &calls.ledger, &front, &strangers, &seal, &stop);
    let reloading = crate::reload::watch(cli, &config, stamp, &front, &stop);
    select! {
        () = async { tokio::join!(tidying, reloading); } => {}
        () = servers.wait() => {}
    }
    info!("Stopping: no new calls; running calls may finish.");
    let ended = async {
        servers.wait().await;
        calls.drain().await;
    };
    if timeout(config.grace, ended).await.is_err() {
        warn!(grace = ?config.grace, "Calls still running at the shutdown deadline; the next start records them.");
    }
    upstreams.close_all().await;
    strangers.report_all().await;
    // The last handles on the ledger go with these, and the writer ends when it has written what it was given.
    drop((front, calls, upstreams, strangers));
    background.close();
    if timeout(config.grace, background.wait()).await.is_err() {
        error!("Audit still being written at the shutdown deadline.");
    }
    if let Err(error) = seal.put(&store, Sealed::default()).await {
        warn!(%error, "Last audit head not sealed.");
    }
    store.close().await;
    drop(lock);
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|error| Error::Listen(address, error))
}

/// What has to be done now and then.
async fn tidy(
    config: &Config,
    store: &Store,
    ledger: &Ledger,
    front: &Front,
    strangers: &Strangers,
    seal: &Seal,
    stop: &CancellationToken,
) {
    let mut seals = interval(config.audit.seal_every);
    let mut rest = interval(TIDY_EVERY);
    let mut reports = interval(REPORT_LOOK_EVERY);
    let mut sealed = Sealed::default();
    loop {
        select! {
            () = stop.cancelled() => return,
            _ = seals.tick() => match seal.put(store, sealed).await {
                Ok(now) => sealed = now,
                Err(error) => error!(%error, "Audit head not sealed."),
            },
            _ = reports.tick() => strangers.report().await,
            _ = rest.tick() => {
                front.forget_the_quiet();
                match ledger.end_overdue().await {
                    Ok(0) => {}
                    Ok(calls) => warn!(calls, "Delayed audit rows written."),
                    Err(error) => error!(%error, "Audit rows of completed calls missing; retrying."),
                }
                if let Err(error) = tidy_store(config, store).await {
                    error!(%error, "Store maintenance failed; retrying.");
                }
            }
        }
    }
}

async fn tidy_store(config: &Config, store: &Store) -> Result<(), DbErr> {
    let lost = audit::recover(store, false).await?;
    if lost > 0 {
        warn!(calls = lost, "Calls of a stopped gateway recorded in the audit.");
    }
    crate::calls::forget_expired(store).await?;
    if let Some(keep) = config.audit.keep {
        let before = clock::now().saturating_sub(i64::try_from(keep.as_micros()).unwrap_or(i64::MAX));
        let gone = audit::prune(store, before).await?;
        if gone > 0 {
            info!(rows = gone, "Expired audit rows deleted.");
        }
    }
    Ok(())
}

/// Writes down which tokens the start revoked. The tokens are refused already; a row that cannot be written is told.
async fn record_revoked(ledger: &Ledger, adopted: &Adopted) {
    for id in &adopted.revoked {
        info!(id, "Previous admin token revoked.");
        let (call_id, now) = (Uuid::now_v7().to_string(), clock::now());
        let record =
            Record::of_administrator(call_id, now, "admin", &adopted.row.id, None, "admin.token.revoke");
        if ledger.end(record, WasBegun::Not).await.is_err() {
            error!(id, "Token revocation not recorded.");
        }
    }
}

fn stop_on_signal(stop: &CancellationToken) -> Result<(), Error> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut received = signal(kind).map_err(Error::Signals)?;
        let stop = stop.clone();
        // Ends with the process: there is nobody to wait for it.
        drop(TaskTracker::new().spawn(async move {
            received.recv().await;
            stop.cancel();
        }));
    }
    Ok(())
}
