//! Where administrators come in: the same operations as REST and as a console, on a listener of their own.

mod actor; // who administers
mod change; // a change and the word of it, together
mod check; // fields that somebody filled in
mod console; // pages
mod error; // what can go wrong, and what is said about it
mod guard; // requests that are meant for somebody else
mod health; // for whoever watches the process
pub mod operations; // what can be done
mod rest; // the operations over HTTP

use std::sync::Arc;

pub use actor::{Actor, Holder};
use axum::{Router, middleware};
pub use error::Error;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::operations::Glance;

use crate::{
    audit::Seal,
    calls::Calls,
    config::{self, Config},
    metrics::Metrics,
    nats::Nats,
    store::Store,
    strangers::Strangers,
    upstreams::Upstreams,
};

/// What administration works with.
#[derive(Debug)]
pub struct Admin {
    pub(crate) store: Store,
    pub(crate) calls: Arc<Calls>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) nats: Option<Arc<Nats>>,
    /// What was seen of the work of late, for all who look at it.
    pub(crate) glance: Glance,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) strangers: Arc<Strangers>,
    pub(crate) settings: config::Admin,
    /// One rotation of the first administrator's token at a time.
    pub(crate) rotating: Mutex<()>,
    /// Whether servers may be registered that are started as processes of ours.
    pub(crate) stdio: bool,
    /// Answers that have no end of their own end with it.
    pub(crate) stop: CancellationToken,
}

/// What is administered.
#[derive(Debug)]
pub struct Parts {
    pub store: Store,
    pub calls: Arc<Calls>,
    pub upstreams: Arc<Upstreams>,
    pub seal: Arc<Seal>,
    pub nats: Option<Arc<Nats>>,
    pub metrics: Arc<Metrics>,
    pub(crate) strangers: Arc<Strangers>,
}

impl Admin {
    pub fn new(parts: Parts, config: &Config, stop: CancellationToken) -> Arc<Self> {
        let Parts { store, calls, upstreams, seal, nats, metrics, strangers } = parts;
        let (settings, stdio) = (config.admin.clone(), config.upstreams.stdio);
        let (glance, rotating) = (Glance::default(), Mutex::default());
        Arc::new(Self {
            store,
            calls,
            upstreams,
            seal,
            nats,
            glance,
            metrics,
            strangers,
            settings,
            rotating,
            stdio,
            stop,
        })
    }

    pub fn router(self: Arc<Self>) -> Router {
        let surfaces = rest::router(self.clone()).merge(console::router(self.clone()));
        let paced = surfaces.layer(middleware::from_fn_with_state(self.clone(), guard::pace));
        let guarded = paced.layer(middleware::from_fn_with_state(self.clone(), guard::host));
        guarded.merge(health::router(self))
    }
}
