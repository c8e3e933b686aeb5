//! The servers behind us: what they offer, what of it is served, and how they are.

mod names; // what a tool is called here, and whom it must not be mistaken for
mod pins; // the copy that is served, and what happens when a server says something else
mod transport; // how a server is reached, as the store has it

use std::{
    collections::{BTreeMap, btree_map},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::model::CallToolResult;
use sea_orm::{DbErr, EntityTrait};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::{select, sync::mpsc, time::interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};
use upstream::{Breaker, Failure, Options, Progress, Upstream};

pub use self::{
    names::{folded, served_name},
    pins::{NEW, unservable},
    transport::{Http, Reach, Stdio, Transport},
};
use crate::{
    config,
    store::{Store, entity::upstream as server},
};

/// After this many failures in a row a server is left alone for a while.
const BREAKER: Breaker = Breaker { failures: 5, open_for: Duration::from_secs(10) };

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("upstream `{0}` not found")]
    Unknown(String),
    #[error("cannot list the tools of `{namespace}`: {told}")]
    Unreachable { namespace: String, told: String },
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
}

/// What a look at a server's tools brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refreshed {
    /// New, and now waiting for approval.
    pub new: usize,
    /// Changed, and now waiting for approval.
    pub changed: usize,
    pub unchanged: usize,
    /// Not offered any more.
    pub gone: usize,
}

/// How a server is.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Health {
    /// idle, up, down or open (left alone after too many failures).
    pub state: String,
    pub protocol: Option<String>,
    pub last_error: Option<String>,
    pub restarts: u64,
    pub in_flight: usize,
}

/// A connection, and the row that it was made from.
#[derive(Debug)]
struct Open {
    row: server::Model,
    upstream: Upstream,
    gone: CancellationToken,
}

#[derive(Debug)]
pub struct Upstreams {
    store: Store,
    settings: config::Upstreams,
    max_result_bytes: usize,
    open: Mutex<BTreeMap<String, Open>>,
    /// Each server's own words that its tools changed end up here.
    changes: mpsc::Sender<String>,
    tasks: TaskTracker,
}

impl Upstreams {
    /// Also what looks after the servers until told to stop.
    pub fn start(
        store: Store,
        settings: config::Upstreams,
        max_result_bytes: usize,
        stop: CancellationToken,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let (changes, changed) = mpsc::channel(64);
        let (open, tasks) = (Mutex::default(), TaskTracker::new());
        let upstreams = Arc::new(Self { store, settings, max_result_bytes, open, changes, tasks });
        (upstreams.clone(), upstreams.look_after(changed, stop))
    }

    /// Asks a server what it offers now. What is new or changed waits for approval; what is as it was is served on.
    pub async fn refresh(&self, namespace: &str) -> Result<Refreshed, Error> {
        let row = server::Entity::find_by_id(namespace).one(self.store.read()).await?;
        let row = row.ok_or_else(|| Error::Unknown(namespace.to_owned()))?;
        let unreachable = |error: &upstream::Error| Error::Unreachable {
            namespace: namespace.to_owned(),
            told: error.to_string(),
        };
        let offered = match self.connection(&row) {
            Ok(upstream) => upstream.tools().await,
            Err(error) => Err(error),
        };
        let offered = offered.map_err(|error| unreachable(&error))?;
        let refreshed = pins::compare(&self.store, &row, offered).await?;
        if refreshed.new + refreshed.changed + refreshed.gone > 0 {
            info!(namespace, ?refreshed, "Upstream's tools changed.");
        }
        Ok(refreshed)
    }

    pub async fn call(
        &self,
        row: &server::Model,
        remote: &str,
        arguments: Map<String, Value>,
        meta: Map<String, Value>,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<CallToolResult, Failure> {
        let upstream = self.connection(row).map_err(|error| Failure { error, fate: mcp::Fate::NotRun })?;
        upstream.call(remote, arguments, meta, progress).await
    }

    /// Of every server that was used since we started.
    pub fn health(&self) -> BTreeMap<String, Health> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let healths = open.iter().map(|(namespace, open)| {
            let health = open.upstream.health();
            let state = match health.state {
                upstream::State::Idle => "idle",
                upstream::State::Up => "up",
                upstream::State::Down => "down",
                upstream::State::Open => "open",
            };
            let health = Health {
                state: state.to_owned(),
                protocol: health.version,
                last_error: health.last_error,
                restarts: health.restarts,
                in_flight: health.in_flight,
            };
            (namespace.clone(), health)
        });
        healths.collect()
    }

    /// Ends the connection to a server that was removed or changed.
    pub async fn close(&self, namespace: &str) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
        if let Some(open) = open {
            open.gone.cancel();
            open.upstream.close().await;
        }
    }

    pub async fn close_all(&self) {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for open in open.into_values() {
            open.gone.cancel();
            open.upstream.close().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The connection for this row. One that was made for another version of it is let go: calls that run on it end.
    fn connection(&self, row: &server::Model) -> Result<Upstream, upstream::Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let btree_map::Entry::Occupied(found) = open.entry(row.namespace.clone()) {
            if found.get().row == *row {
                return Ok(found.get().upstream.clone());
            }
            found.remove().gone.cancel();
        }
        let upstream = Upstream::new(self.options(row)?)?;
        let gone = CancellationToken::new();
        self.listen(&row.namespace, &upstream, gone.clone());
        let kept = Open { row: row.clone(), upstream: upstream.clone(), gone };
        open.insert(row.namespace.clone(), kept);
        Ok(upstream)
    }

    fn options(&self, row: &server::Model) -> Result<Options, upstream::Error> {
        let wrong = |error: serde_json::Error| upstream::Error::Options(error.to_string());
        let transport: Transport = serde_json::from_str(&row.transport).map_err(wrong)?;
        Ok(Options {
            name: row.namespace.clone(),
            transport: transport.into_upstream(self.settings.stdio, row.owner.is_some())?,
            connect_timeout: self.settings.connect_timeout,
            call_timeout: Duration::from_millis(u64::try_from(row.call_timeout_ms).unwrap_or(60_000)),
            concurrency: usize::try_from(row.concurrency).unwrap_or(1).max(1),
            max_result_bytes: self.max_result_bytes,
            breaker: BREAKER,
        })
    }

    /// Servers say when their tools change.
    fn listen(&self, namespace: &str, upstream: &Upstream, gone: CancellationToken) {
        let (namespace, changes) = (namespace.to_owned(), self.changes.clone());
        let mut changed = upstream.changed();
        self.tasks.spawn(async move {
            loop {
                select! {
                    () = gone.cancelled() => return,
                    seen = changed.changed() => {
                        // The connection is gone, or nobody looks after servers any more.
                        if seen.is_err() || changes.send(namespace.clone()).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }

    /// Looks at what servers offer: when they say that it changed, and now and then all the same, since not all say so.
    async fn look_after(self: Arc<Self>, mut changed: mpsc::Receiver<String>, stop: CancellationToken) {
        let mut now_and_then = interval(self.settings.refresh_every);
        loop {
            let due = select! {
                () = stop.cancelled() => return,
                Some(namespace) = changed.recv() => vec![namespace],
                _ = now_and_then.tick() => self.registered().await,
            };
            for namespace in due {
                select! {
                    () = stop.cancelled() => return,
                    refreshed = self.refresh(&namespace) => if let Err(error) = refreshed {
                        warn!(namespace, %error, "Upstream refresh failed.");
                    },
                }
            }
        }
    }

    /// The servers that are in use. Connections to others are closed: another instance may have removed them.
    async fn registered(&self) -> Vec<String> {
        let rows = match server::Entity::find().all(self.store.read()).await {
            Ok(rows) => rows,
            Err(error) => {
                warn!(%error, "Upstreams not read from the store.");
                return Vec::new();
            }
        };
        let registered: Vec<String> =
            rows.into_iter().filter(|row| row.enabled).map(|row| row.namespace).collect();
        let open: Vec<String> =
            self.open.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for namespace in open.iter().filter(|namespace| !registered.contains(namespace)) {
            self.close(namespace).await;
        }
        registered
    }
}
