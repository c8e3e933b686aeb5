use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use sea_orm::EntityTrait;
use tokio::time::timeout;

use super::Admin;
use crate::store::entity::revision;

const PATIENCE: Duration = Duration::from_secs(2);
const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Asked by machines under whatever name they have for us, without a token: nothing here is anybody's secret.
pub(super) fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

/// Calls are decided with what the store says. Without it there are none.
async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, &'static str) {
    let asked = revision::Entity::find_by_id(1).one(admin.store.read());
    match timeout(PATIENCE, asked).await {
        _ if admin.stop.is_cancelled() => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
        Ok(Ok(Some(_))) => (StatusCode::OK, "ok\n"),
        Ok(Ok(None) | Err(_)) | Err(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be used at the moment\n")
        }
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    admin.metrics.upstreams(&admin.upstreams.health());
    ([(CONTENT_TYPE, PROMETHEUS)], admin.metrics.text())
}
