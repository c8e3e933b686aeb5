//! Administration: the same operations as a REST API and as a web console, on a listener of its own.

mod actor;
mod change;
mod check;
mod console;
mod error;
mod guard;
mod health;
pub mod operations;
mod rest;

use std::sync::Arc;

pub use actor::{Actor, Holder};
use axum::{Router, middleware};
pub use error::Error;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::operations::WorkCache;

use crate::{
    audit::Seal,
    calls::Calls,
    config::{self, Config},
    metrics::Metrics,
    nats::Nats,
    store::Store,
    unauthenticated::UnauthenticatedLimiter,
    upstreams::Upstreams,
};

/// The state of the administration listener. REST handlers, console pages and operations share it.
#[derive(Debug)]
pub struct Admin {
    pub(crate) store: Store,
    pub(crate) calls: Arc<Calls>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) nats: Option<Arc<Nats>>,
    /// The last answer of NATS about queues and handoffs, shared by concurrent readers.
    pub(crate) work_cache: WorkCache,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) unauthenticated: Arc<UnauthenticatedLimiter>,
    pub(crate) settings: config::Admin,
    /// Held while the first administrator's token is rotated: one rotation at a time.
    pub(crate) rotation_lock: Mutex<()>,
    /// Whether upstreams may be registered that the gateway starts as child processes.
    pub(crate) allow_stdio: bool,
    /// Ends streaming responses, which have no end of their own.
    pub(crate) stop: CancellationToken,
}

/// What [`Admin::new`] needs from the rest of the gateway.
#[derive(Debug)]
pub struct AdminResources {
    pub store: Store,
    pub calls: Arc<Calls>,
    pub upstreams: Arc<Upstreams>,
    pub seal: Arc<Seal>,
    pub nats: Option<Arc<Nats>>,
    pub metrics: Arc<Metrics>,
    pub(crate) unauthenticated: Arc<UnauthenticatedLimiter>,
}

impl Admin {
    pub fn new(resources: AdminResources, config: &Config, stop: CancellationToken) -> Arc<Self> {
        let AdminResources { store, calls, upstreams, seal, nats, metrics, unauthenticated } = resources;
        let (settings, allow_stdio) = (config.admin.clone(), config.upstreams.stdio);
        let (work_cache, rotation_lock) = (WorkCache::default(), Mutex::default());
        Arc::new(Self {
            store,
            calls,
            upstreams,
            seal,
            nats,
            work_cache,
            metrics,
            unauthenticated,
            settings,
            rotation_lock,
            allow_stdio,
            stop,
        })
    }

    pub fn router(self: Arc<Self>) -> Router {
        let surfaces = rest::router(self.clone()).merge(console::router(self.clone()));
        let paced = surfaces.layer(middleware::from_fn_with_state(self.clone(), guard::limit_rate));
        let guarded = paced.layer(middleware::from_fn_with_state(self.clone(), guard::check_host));
        guarded.merge(health::router(self))
    }
}
