//! The listener for agents: MCP over HTTP without sessions, for all supported protocol versions.

mod call;
mod fast_path;
mod guard;
mod headers;
mod identity;
mod peek;
mod server;

use std::{num::NonZeroU32, sync::Arc};

use arc_swap::ArcSwap;
use axum::{Router, routing::any};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};

use policy::{AgentKind, Caller};

use access::{leases::Leases, tokens::TokenCache, unauthenticated::UnauthenticatedLimiter};
use store::Store;

use crate::{
    calls::Calls,
    config::{self, Config},
};

/// An orchestrator may make this many times as many calls as another agent: it has one token for all users,
/// and limits each of them itself.
const ORCHESTRATOR_FACTOR: u32 = 10;

type Mcp = StreamableHttpService<server::Server, NeverSessionManager>;

/// Settings that a reload replaces, and what is built from them.
struct LiveSettings {
    settings: config::Mcp,
    mcp: Mcp,
    /// Limits calls per second, by token id.
    rate_limiter: DefaultKeyedRateLimiter<String>,
    /// The same for tokens of orchestrators, nodes and workflow runners.
    orchestrator_limiter: DefaultKeyedRateLimiter<String>,
}

/// Serves MCP requests of agents.
pub(crate) struct Front {
    store: Store,
    calls: Arc<Calls>,
    tokens: TokenCache,
    leases: Leases,
    unauthenticated: Arc<UnauthenticatedLimiter>,
    live: ArcSwap<LiveSettings>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

impl Front {
    pub(crate) fn new(
        store: Store,
        calls: Arc<Calls>,
        leases: Leases,
        unauthenticated: Arc<UnauthenticatedLimiter>,
        config: &Config,
    ) -> Arc<Self> {
        let live = ArcSwap::from_pointee(LiveSettings::new(&calls, config));
        Arc::new(Self { store, calls, tokens: TokenCache::default(), leases, unauthenticated, live })
    }

    /// Applies a new configuration. Requests in flight keep the old one.
    pub(crate) fn reload(&self, config: &Config) {
        self.live.store(Arc::new(LiveSettings::new(&self.calls, config)));
        self.unauthenticated.reload(config.unauthenticated);
    }

    /// Removes idle callers from the rate limiter.
    pub(crate) fn drop_idle_callers(&self) {
        let live = self.live.load();
        live.rate_limiter.retain_recent();
        live.orchestrator_limiter.retain_recent();
    }

    pub(crate) fn router(self: Arc<Self>) -> Router {
        Router::new().route("/mcp", any(guard::handle)).with_state(self)
    }
}

impl LiveSettings {
    fn new(calls: &Arc<Calls>, config: &Config) -> Self {
        let settings = config.mcp.clone();
        let http = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            // The edge checks them, by the same rule as administration does.
            .disable_allowed_hosts()
            .with_allowed_origins(settings.origins.clone())
            .enforce_origin_validation()
            .with_max_request_body_bytes(settings.max_body_bytes);
        let served = server::Server::new(calls.clone());
        let mcp = StreamableHttpService::new(
            move || Ok(served.clone()),
            Arc::<NeverSessionManager>::default(),
            http,
        );
        let limiter = |per_second: u32| {
            RateLimiter::keyed(Quota::per_second(NonZeroU32::new(per_second).unwrap_or(NonZeroU32::MIN)))
        };
        let per_second = config.calls.per_second;
        let orchestrator_limiter = limiter(per_second.saturating_mul(ORCHESTRATOR_FACTOR));
        Self { settings, mcp, rate_limiter: limiter(per_second), orchestrator_limiter }
    }

    fn rate_limiter(&self, caller: &Caller) -> &DefaultKeyedRateLimiter<String> {
        match caller.agent.kind() {
            // They call for many.
            AgentKind::Orchestrator | AgentKind::Node | AgentKind::Workflow => &self.orchestrator_limiter,
            AgentKind::ProjectManager | AgentKind::ProjectAnalyst | AgentKind::Sandbox => &self.rate_limiter,
        }
    }
}
