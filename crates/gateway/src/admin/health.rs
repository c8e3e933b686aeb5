//! Probes and metrics for orchestrators and Prometheus.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use sea_orm::EntityTrait;
use tokio::time::timeout;

use super::Admin;
use crate::store::entity::revision;

const READY_TIMEOUT: Duration = Duration::from_secs(2);
const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves probes and metrics without a token and under any host name; they contain no secrets.
pub(super) fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

/// Reports ready while the store responds: without it every call is denied.
async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, &'static str) {
    let query = revision::Entity::find_by_id(1).one(admin.store.read());
    match timeout(READY_TIMEOUT, query).await {
        _ if admin.stop.is_cancelled() => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        Ok(Ok(Some(_))) => (StatusCode::OK, "ok\n"),
        Ok(Ok(None) | Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "store not available\n"),
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    admin.metrics.set_upstreams(&admin.upstreams.health());
    ([(CONTENT_TYPE, PROMETHEUS)], admin.metrics.render())
}
