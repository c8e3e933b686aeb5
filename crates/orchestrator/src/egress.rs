//! The egress (P15): the only way from agents to external providers of models.
//!
//! An agent presents its token and the lease of its handoff. The gateway decides whether the lease's user
//! may use the provider, and counts what is used. The egress adds the provider's key, which is nowhere else,
//! and streams the reply. Nothing of the agent's request is passed on but its body and a few harmless
//! headers.

mod admission;
mod bounds;
mod call;
mod credential;
mod failure;
mod mask;
mod paths;
mod provider;
mod relay;
mod request;
mod reservation;
mod unique;
mod usage;

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Extension, Router,
    extract::{ConnectInfo, Request, State},
    response::{IntoResponse, Response},
    routing::any,
};
use http::StatusCode;
use listener::{ConnectionAuth, hosts};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::{paths::Target, provider::Provider, request::BodyLimits};
use crate::{
    config, error::ApiError, gateway::Gateway, metrics::Metrics, proven_secrets::ProvenSecrets, state::App,
};

/// The providers, and the calls to them.
#[derive(Debug)]
pub(crate) struct Egress {
    settings: config::Egress,
    providers: Vec<Arc<Provider>>,
    gateway: Gateway,
    metrics: Arc<Metrics>,
    /// Tokens of agents.
    proven: ProvenSecrets,
    /// Permits of calls at the same time.
    permits: Arc<Semaphore>,
    /// Beginnings and ends of calls that are being reported to the gateway, also without the agent.
    reports: TaskTracker,
}

impl Egress {
    pub(crate) fn new(
        settings: config::Egress,
        gateway: Gateway,
        metrics: Arc<Metrics>,
    ) -> Result<Self, reqwest::Error> {
        let providers = settings.providers.iter().map(Provider::new);
        let providers = providers.map(|provider| provider.map(Arc::new)).collect::<Result<_, _>>()?;
        let permits = Arc::new(Semaphore::new(settings.max_calls));
        let (proven, reports) = (ProvenSecrets::default(), TaskTracker::new());
        Ok(Self { settings, providers, gateway, metrics, proven, permits, reports })
    }

    /// Returns the address to serve, if there is a provider to be reached.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        (!self.providers.is_empty()).then_some(self.settings.listen)
    }

    /// Returns the names of the providers.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.providers.iter().map(|provider| provider.name()).collect()
    }

    /// Waits until the ends of all calls are reported.
    pub(crate) async fn drain(&self) {
        self.reports.close();
        self.reports.wait().await;
    }

    fn provider(&self, name: &str) -> Result<&Arc<Provider>, ApiError> {
        self.providers.iter().find(|provider| provider.name() == name).ok_or_else(|| {
            let names = self.names().join(", ");
            let message = format!("The provider `{name}` is not configured here; there is {names}.");
            ApiError::new(StatusCode::NOT_FOUND, "unknown_provider", message)
        })
    }
}

/// State shared by the calls of agents.
#[derive(Clone, Debug)]
struct Shared {
    app: Arc<App>,
    egress: Arc<Egress>,
}

/// Serves `/egress/{provider}/{path…}` to agents.
pub(crate) fn router(app: Arc<App>, egress: Arc<Egress>) -> Router {
    Router::new()
        .route("/egress/{provider}/{*path}", any(serve))
        .fallback(unknown_path)
        .with_state(Shared { app, egress })
}

async fn unknown_path() -> ApiError {
    let message = "Unknown path; the egress serves /egress/{provider}/{path}. See docs/egress.md.";
    ApiError::new(StatusCode::NOT_FOUND, "unknown_url", message)
}

async fn serve(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extension(auth): Extension<ConnectionAuth>,
    request: Request,
) -> Response {
    let response = match call(&shared, peer, &auth, request).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    };
    shared.app.metrics.count_egress_response(response.status().as_u16());
    response
}

/// Makes one call: admits the agent, asks the provider, and streams the reply.
async fn call(
    shared: &Shared,
    peer: SocketAddr,
    auth: &ConnectionAuth,
    request: Request,
) -> Result<Response, ApiError> {
    let (app, egress) = (&shared.app, &shared.egress);
    let deadline = Instant::now() + egress.settings.timeout;
    check_host(egress, &request)?;
    let (parts, body) = request.into_parts();
    let agent = admission::read(&parts.headers)?;
    // Before the body is read: clients without a valid token are limited by their address.
    let is_proven = egress.proven.contains(&agent.token_hash);
    if !is_proven {
        app.limits.count_unauthenticated(peer.ip())?;
    }
    let target = Target::parse(&parts.method, parts.uri.path()).map_err(log_refusal)?;
    let provider = egress.provider(target.provider).map_err(log_refusal)?;
    let permit = egress.permits.clone().try_acquire_owned().map_err(|_| {
        let message = "All calls of this egress are in use; repeat the request.";
        ApiError::unavailable("too_many_calls", message)
    })?;
    let limits = BodyLimits { bytes: egress.settings.max_body_bytes, time: app.config.api.read_timeout };
    let prepared = request::prepare(limits, &target, provider, body).await.map_err(log_refusal)?;
    let begun = admission::begin(egress, &agent, auth, &target, provider, &prepared).await;
    if !is_proven && egress.proven.contains(&agent.token_hash) {
        app.limits.refund_unauthenticated(peer.ip());
    }
    let mut call = begun?;
    call.hold(permit);
    let asked = provider.ask(&target, &parts.headers, prepared.body);
    relay::respond(egress, provider, call, asked, deadline, app.closing.clone()).await
}

/// Logs that a request is refused before the gateway is asked, so that its audit does not have it.
fn log_refusal(refused: ApiError) -> ApiError {
    info!(reason = %refused.code, param = refused.param.as_deref(), "Call to a provider refused.");
    refused
}

fn check_host(egress: &Egress, request: &Request) -> Result<(), ApiError> {
    let host = hosts::requested(request.uri(), request.headers());
    if host.as_ref().is_some_and(|host| hosts::is_known(host, &egress.settings.hosts)) {
        return Ok(());
    }
    if let Some(host) = host {
        warn!(%host, "Request refused: egress.hosts does not list its host name.");
    }
    let message = "This host name is not served; the setting egress.hosts lists those that are.";
    Err(ApiError::new(StatusCode::FORBIDDEN, "host_not_allowed", message))
}
