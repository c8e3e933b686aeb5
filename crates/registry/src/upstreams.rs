//! Connections to upstreams: calls their tools, watches what they offer, and reports their health.

mod names;
mod pins;
pub mod transport;

use std::{
    collections::{BTreeMap, btree_map},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::model::CallToolResult;
use sea_orm::{DbErr, EntityTrait};
use serde_json::{Map, Value};
use tokio::{select, sync::mpsc, time::interval};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};
use upstream::{Breaker, Failure, Options, Progress, Upstream};

pub use self::{
    names::{fold_name, served_name},
    pins::{REASON_NEW, unservable_reason},
};
pub use api::{Health, Refreshed};
use store::{Store, entity::upstream as server};

/// The circuit breaker of each upstream opens after this many consecutive failures.
const BREAKER: Breaker = Breaker { failures: 5, open_for: Duration::from_secs(10) };

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("upstream `{0}` not found")]
    Unknown(String),
    #[error("cannot list the tools of `{namespace}`: {reason}")]
    Unreachable { namespace: String, reason: String },
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
}

/// Settings of all connections.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub connect_timeout: Duration,
    pub refresh_every: Duration,
    /// Whether upstreams may be programs that the gateway starts.
    pub stdio: bool,
    /// Whether tools are called over HTTP without rmcp's client where that is possible.
    pub fast_path: bool,
}

/// A connection, and the row that it was made from.
#[derive(Debug)]
struct Connection {
    row: server::Model,
    upstream: Upstream,
    /// Cancelled when the connection is dropped.
    closed: CancellationToken,
}

/// The connections to all upstreams.
#[derive(Debug)]
pub struct Upstreams {
    store: Store,
    settings: Settings,
    max_result_bytes: usize,
    /// By namespace.
    connections: Mutex<BTreeMap<String, Connection>>,
    /// Receives the namespace of an upstream that announces changed tools.
    changes: mpsc::Sender<String>,
    tasks: TaskTracker,
}

impl Upstreams {
    /// Returns the connections, and the task that refreshes the tools of upstreams until `stop` is cancelled.
    pub fn start(
        store: Store,
        settings: Settings,
        max_result_bytes: usize,
        stop: CancellationToken,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send) {
        let (changes, changed) = mpsc::channel(64);
        let (connections, tasks) = (Mutex::default(), TaskTracker::new());
        let upstreams = Arc::new(Self { store, settings, max_result_bytes, connections, changes, tasks });
        (upstreams.clone(), upstreams.watch(changed, stop))
    }

    /// Lists the tools of an upstream. New and changed tools are quarantined until they are approved;
    /// unchanged ones are still served.
    pub async fn refresh(&self, namespace: &str) -> Result<Refreshed, Error> {
        let row = server::Entity::find_by_id(namespace).one(self.store.read()).await?;
        let row = row.ok_or_else(|| Error::Unknown(namespace.to_owned()))?;
        let unreachable = |error: &upstream::Error| Error::Unreachable {
            namespace: namespace.to_owned(),
            reason: error.to_string(),
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

    /// Calls a tool of an upstream under the tool's name there. Connects first if needed.
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

    /// Returns the health of every connected upstream, by namespace.
    pub fn health(&self) -> BTreeMap<String, Health> {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let healths = connections.iter().map(|(namespace, connection)| {
            let health = connection.upstream.health();
            let health = Health {
                state: health.state.as_str().to_owned(),
                protocol: health.version,
                last_error: health.last_error,
                restarts: health.restarts,
                in_flight: health.in_flight,
            };
            (namespace.clone(), health)
        });
        healths.collect()
    }

    /// Closes the connection to an upstream that was removed or changed.
    pub async fn close(&self, namespace: &str) {
        let removed = self.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
        if let Some(connection) = removed {
            connection.closed.cancel();
            connection.upstream.close().await;
        }
    }

    /// Closes all connections and waits for their tasks.
    pub async fn close_all(&self) {
        let all = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in all.into_values() {
            connection.closed.cancel();
            connection.upstream.close().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns the connection for this row. Replaces one that was made from another version of the row; calls
    /// in flight on the old connection may finish.
    fn connection(&self, row: &server::Model) -> Result<Upstream, upstream::Error> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let btree_map::Entry::Occupied(found) = connections.entry(row.namespace.clone()) {
            if found.get().row == *row {
                return Ok(found.get().upstream.clone());
            }
            found.remove().closed.cancel();
        }
        let upstream = Upstream::new(self.options(row)?)?;
        let closed = CancellationToken::new();
        self.listen(&row.namespace, &upstream, closed.clone());
        let connection = Connection { row: row.clone(), upstream: upstream.clone(), closed };
        connections.insert(row.namespace.clone(), connection);
        Ok(upstream)
    }

    fn options(&self, row: &server::Model) -> Result<Options, upstream::Error> {
        let invalid = |error: serde_json::Error| upstream::Error::Options(error.to_string());
        let stored = serde_json::from_str(&row.transport).map_err(invalid)?;
        Ok(Options {
            name: row.namespace.clone(),
            transport: transport::into_upstream(stored, self.settings.stdio, row.owner.is_some())?,
            connect_timeout: self.settings.connect_timeout,
            call_timeout: Duration::from_millis(u64::try_from(row.call_timeout_ms).unwrap_or(60_000)),
            concurrency: usize::try_from(row.concurrency).unwrap_or(1).max(1),
            max_result_bytes: self.max_result_bytes,
            fast_path: self.settings.fast_path,
            breaker: BREAKER,
        })
    }

    /// Spawns a task that forwards the upstream's announcements of changed tools.
    fn listen(&self, namespace: &str, upstream: &Upstream, closed: CancellationToken) {
        let (namespace, changes) = (namespace.to_owned(), self.changes.clone());
        let mut changed = upstream.tool_changes();
        self.tasks.spawn(async move {
            loop {
                select! {
                    () = closed.cancelled() => return,
                    announced = changed.changed() => {
                        // The connection is closed, or the watching task has ended.
                        if announced.is_err() || changes.send(namespace.clone()).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }

    /// Refreshes tools when an upstream announces a change, and all upstreams periodically, because not all
    /// announce changes.
    async fn watch(self: Arc<Self>, mut changed: mpsc::Receiver<String>, stop: CancellationToken) {
        let mut ticks = interval(self.settings.refresh_every);
        loop {
            let due = select! {
                () = stop.cancelled() => return,
                Some(namespace) = changed.recv() => vec![namespace],
                _ = ticks.tick() => self.close_unregistered().await,
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

    /// Closes connections to upstreams that are no longer registered, for example because another instance
    /// has removed them. Returns the enabled ones.
    async fn close_unregistered(&self) -> Vec<String> {
        let rows = match server::Entity::find().all(self.store.read()).await {
            Ok(rows) => rows,
            Err(error) => {
                warn!(%error, "Upstreams not read from the store.");
                return Vec::new();
            }
        };
        let registered: Vec<String> =
            rows.into_iter().filter(|row| row.enabled).map(|row| row.namespace).collect();
        let connected: Vec<String> =
            self.connections.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for namespace in connected.iter().filter(|namespace| !registered.contains(namespace)) {
            self.close(namespace).await;
        }
        registered
    }
}
