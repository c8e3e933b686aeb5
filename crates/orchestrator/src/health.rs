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

async fn ready(State(app): State<Arc<App>>) -> (StatusCode, &'static str) {
    match why_chats_are_refused(&app).await {
        None => (StatusCode::OK, "ok\n"),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    }
}

/// Returns why every chat is refused at the moment, if it is. Probe and metric have to agree: load balancers
/// follow the one, alerts the other.
async fn why_chats_are_refused(app: &App) -> Option<&'static str> {
    if app.stop.is_cancelled() {
        return Some("stopping\n");
    }
    if app.nats.broker().await.is_err() {
        return Some("NATS not available\n");
    }
    if !app.turns.is_ready() {
        return Some("answers are not read: the streams may be missing\n");
    }
    match timeout(READY_TIMEOUT, app.gateway.tools()).await {
        Ok(Ok(_)) => None,
        Ok(Err(_)) | Err(_) => Some("gateway not available\n"),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    app.metrics.set_ready(why_chats_are_refused(&app).await.is_none());
    app.metrics.set_oldest_wait(app.turns.oldest_wait());
    ([(CONTENT_TYPE, PROMETHEUS)], app.metrics.render())
}
