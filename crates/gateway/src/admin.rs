//! Where administrators come in: the same operations as REST and as a console, on a listener of their own.

use std::sync::Arc;

use axum::Router;

use crate::{audit::Seal, calls::Calls, config, store::Store, upstreams::Upstreams};

/// What administration works with.
#[derive(Debug)]
pub struct Admin {
    pub(crate) store: Store,
    pub(crate) calls: Arc<Calls>,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) settings: config::Admin,
}

impl Admin {
    pub fn new(
        store: Store,
        calls: Arc<Calls>,
        upstreams: Arc<Upstreams>,
        seal: Arc<Seal>,
        settings: config::Admin,
    ) -> Arc<Self> {
        Arc::new(Self { store, calls, upstreams, seal, settings })
    }

    pub fn router(self: Arc<Self>) -> Router {
        Router::new()
    }
}
