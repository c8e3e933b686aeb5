//! Probes and metrics, on a listener of their own.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use tokio::time::timeout;

use crate::state::App;

const READY_TIMEOUT: Duration = Duration::from_secs(2);
const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves probes and metrics without a key and under any host name; they contain no secrets.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(app)
}

/// Reports ready while NATS and the gateway respond: without them every chat is refused.
async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    if app.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    if app.nats.broker().await.is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "NATS not available\n");
    }
    if !app.turns.is_ready() {
        return (StatusCode::SERVICE_UNAVAILABLE, "answers are not read yet: the streams may be missing\n");
    }
    match timeout(READY_TIMEOUT, app.gateway.tools()).await {
        Ok(Ok(_)) => (StatusCode::OK, "ok\n"),
        Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "gateway not available\n"),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    app.metrics.set_ready(app.turns.is_ready() && !app.stop.is_cancelled());
    app.metrics.set_oldest_wait(app.turns.oldest_wait());
    ([(CONTENT_TYPE, PROMETHEUS)], app.metrics.render())
}
