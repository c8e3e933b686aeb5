//! Probes and metrics.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{StatusCode, header::CONTENT_TYPE};
use tokio::net::TcpListener;

use crate::{health::Health, metrics::Metrics};

const PROMETHEUS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug)]
struct Shown {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

/// Serves probes and metrics without a token and under any host name; they contain no secrets.
pub(crate) fn router(health: Arc<Health>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(show_metrics))
        .with_state(Shown { health, metrics })
}

async fn ready(State(shown): State<Shown>) -> (StatusCode, String) {
    let reasons = shown.health.reasons();
    if reasons.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", reasons.join("\n")))
    }
}

async fn show_metrics(State(shown): State<Shown>) -> impl IntoResponse {
    shown.metrics.set_ready(shown.health.reasons().is_empty());
    ([(CONTENT_TYPE, PROMETHEUS)], shown.metrics.render())
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, std::io::Error> {
    TcpListener::bind(address).await
}
