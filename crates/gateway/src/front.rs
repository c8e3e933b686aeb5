//! Where agents come in: MCP over HTTP, both eras, no sessions.

mod call; // a call of a tool, by whichever way it came in
mod edge; // before MCP: sizes, headers, shape, token, pace
mod glimpse; // what a body is about, before anybody acts on it
mod plain; // calls in which nothing is unusual
mod server; // MCP itself

use std::{num::NonZeroU32, sync::Arc};

use arc_swap::ArcSwap;
use axum::{Router, routing::any};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};

use crate::{
    calls::Calls,
    config::{self, Config},
    store::Store,
    strangers::Strangers,
    tokens::Remembered,
};

type Mcp = StreamableHttpService<server::Server, NeverSessionManager>;

/// What may change while we run.
struct Present {
    settings: config::Mcp,
    mcp: Mcp,
    pace: DefaultKeyedRateLimiter<String>,
}

pub struct Front {
    store: Store,
    calls: Arc<Calls>,
    remembered: Remembered,
    strangers: Arc<Strangers>,
    present: ArcSwap<Present>,
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
        strangers: Arc<Strangers>,
        config: &Config,
    ) -> Arc<Self> {
        let present = ArcSwap::from_pointee(Present::new(&calls, config));
        Arc::new(Self { store, calls, remembered: Remembered::default(), strangers, present })
    }

    /// Requests that came before keep what they came with.
    pub fn reload(&self, config: &Config) {
        self.present.store(Arc::new(Present::new(&self.calls, config)));
        self.strangers.reload(config.strangers);
    }

    /// Callers who were not heard of for a while need no place in the count.
    pub fn forget_the_quiet(&self) {
        self.present.load().pace.retain_recent();
    }

    pub fn router(self: Arc<Self>) -> Router {
        Router::new().route("/mcp", any(edge::enter)).with_state(self)
    }
}

impl Present {
    fn new(calls: &Arc<Calls>, config: &Config) -> Self {
        let settings = config.mcp.clone();
        let http = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_allowed_hosts(settings.hosts.clone())
            .with_allowed_origins(settings.origins.clone())
            .enforce_origin_validation()
            .with_max_request_body_bytes(settings.max_body_bytes);
        let served = server::Server::new(calls.clone());
        let mcp = StreamableHttpService::new(
            move || Ok(served.clone()),
            Arc::<NeverSessionManager>::default(),
            http,
        );
        let per_second = NonZeroU32::new(config.calls.per_second).unwrap_or(NonZeroU32::MIN);
        Self { settings, mcp, pace: RateLimiter::keyed(Quota::per_second(per_second)) }
    }
}
