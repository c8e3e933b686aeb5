//! HTTP endpoints `/healthz`, `/readyz` and `/metrics`.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Health, Metrics};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("http.listen: cannot listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
    #[error("serving /healthz, /readyz and /metrics")]
    Serve(#[source] std::io::Error),
}

/// Serves `/healthz`, `/readyz` and `/metrics`.
#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Shared,
}

#[derive(Clone, Debug)]
struct Shared {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl Server {
    pub(crate) async fn bind(
        address: SocketAddr,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen(address, source))?;
        let address = listener.local_addr().map_err(|source| Error::Listen(address, source))?;
        Ok(Self { listener, address, shared: Shared { health, metrics } })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn serve(self, stop: CancellationToken) -> Result<(), Error> {
        let app = Router::new()
            .route("/healthz", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self.shared);
        axum::serve(self.listener, app)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
            .map_err(Error::Serve)
    }
}

async fn ready(State(shared): State<Shared>) -> impl IntoResponse {
    let reasons = shared.health.reasons_not_ready();
    if reasons.is_empty() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", reasons.join("; ")))
    }
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    shared.metrics.ready.set(i64::from(shared.health.reasons_not_ready().is_empty()));
    match shared.metrics.encode() {
        Ok(text) => (
            StatusCode::OK,
            [("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")],
            text,
        ),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [("content-type", "text/plain")],
            "cannot be written\n".to_owned(),
        ),
    }
}
