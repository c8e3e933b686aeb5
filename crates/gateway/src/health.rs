//! Probes and metrics for orchestrators and Prometheus.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use sea_orm::EntityTrait;
use tokio::time::timeout;

use registry::upstreams::Upstreams;
use store::{Store, entity::revision};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

const READY_TIMEOUT: Duration = Duration::from_secs(2);
const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What probes and metrics are about.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) store: Store,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) stop: CancellationToken,
}

/// Serves probes and metrics without a token and under any host name; they contain no secrets.
pub(crate) fn router(watched: Watched) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(watched)
}

/// Reports ready while the store responds: without it every call is denied.
async fn ready(State(watched): State<Watched>) -> (StatusCode, &'static str) {
    let query = revision::Entity::find_by_id(1).one(watched.store.read());
    match timeout(READY_TIMEOUT, query).await {
        _ if watched.stop.is_cancelled() => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        Ok(Ok(Some(_))) => (StatusCode::OK, "ok\n"),
        Ok(Ok(None) | Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "store not available\n"),
    }
}

async fn metrics(State(watched): State<Watched>) -> impl IntoResponse {
    watched.metrics.set_upstreams(&watched.upstreams.health());
    ([(CONTENT_TYPE, PROMETHEUS)], watched.metrics.render())
}
