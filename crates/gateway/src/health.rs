//! Probes and metrics for orchestrators and Prometheus.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use sea_orm::EntityTrait;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use registry::upstreams::Upstreams;
use store::{Store, entity::revision};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

const READY_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_PROBE: Duration = Duration::from_millis(500);
const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The state that probes and metrics report.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    store: Store,
    upstreams: Arc<Upstreams>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    /// When the store was probed last, and with what result.
    last_probe: Arc<Mutex<Option<(Instant, StoreState)>>>,
}

impl Watched {
    pub(crate) fn new(
        store: Store,
        upstreams: Arc<Upstreams>,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) -> Self {
        Self { store, upstreams, metrics, stop, last_probe: Arc::default() }
    }
}

/// Serves probes and metrics without a token and under any host name; they contain no secrets.
pub(crate) fn router(watched: Watched) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(watched)
}

/// Reports ready while the store accepts writes: without them every call is denied.
async fn ready(State(watched): State<Watched>) -> (StatusCode, &'static str) {
    if watched.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    match timeout(READY_TIMEOUT, watched.probe()).await {
        Ok(StoreState::Writable) => (StatusCode::OK, "ok\n"),
        Ok(StoreState::ReadOnly) => {
            (StatusCode::SERVICE_UNAVAILABLE, "store accepts no writes; is its disk full?\n")
        }
        Ok(StoreState::Unavailable) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "store not available\n"),
    }
}

/// The state of the store according to the last probe.
#[derive(Clone, Copy, Debug)]
enum StoreState {
    Writable,
    ReadOnly,
    Unavailable,
}

impl Watched {
    /// Reads and writes one row. The result is kept for a moment, so that probes cost the store nothing,
    /// however often they come.
    async fn probe(&self) -> StoreState {
        let mut last = self.last_probe.lock().await;
        match *last {
            Some((at, state)) if at.elapsed() < KEEP_PROBE => return state,
            _ => {}
        }
        let read = revision::Entity::find_by_id(1).one(self.store.read()).await;
        let state = match read {
            Ok(Some(_)) if self.store.probe_write().await.is_ok() => StoreState::Writable,
            Ok(Some(_)) => StoreState::ReadOnly,
            Ok(None) | Err(_) => StoreState::Unavailable,
        };
        *last = Some((Instant::now(), state));
        state
    }
}

async fn metrics(State(watched): State<Watched>) -> impl IntoResponse {
    watched.metrics.set_upstreams(&watched.upstreams.health());
    ([(CONTENT_TYPE, PROMETHEUS)], watched.metrics.render())
}
