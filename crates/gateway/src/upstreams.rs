//! The servers behind us: what they offer, what of it is served, and how they are.

use std::collections::BTreeMap;

use sea_orm::DbErr;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::store::Store;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no server `{0}`")]
    Unknown(String),
    #[error("`{namespace}` cannot be asked for its tools: {told}")]
    Unreachable { namespace: String, told: String },
    #[error("the store cannot be used at the moment")]
    Store(#[from] DbErr),
}

/// What a look at a server's tools brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Refreshed {
    /// New, and now waiting for approval.
    pub new: usize,
    /// Changed, and now waiting for approval.
    pub changed: usize,
    pub unchanged: usize,
    /// Not offered any more.
    pub gone: usize,
}

/// How a server is.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Health {
    /// idle, up, down or resting (after too many failures).
    pub state: String,
    pub protocol: Option<String>,
    pub last_error: Option<String>,
    pub restarts: u64,
    pub in_flight: usize,
}

#[derive(Debug)]
pub struct Upstreams {
    store: Store,
    open: Mutex<BTreeMap<String, ()>>,
}

impl Upstreams {
    pub fn new(store: Store) -> Self {
        Self { store, open: Mutex::default() }
    }

    /// Asks a server what it offers now. What is new or changed waits for approval; what is as it was is served on.
    pub async fn refresh(&self, namespace: &str) -> Result<Refreshed, Error> {
        let _ = (&self.store, &self.open);
        Err(Error::Unknown(namespace.to_owned()))
    }

    /// Of every server that was used since we started.
    pub async fn health(&self) -> BTreeMap<String, Health> {
        BTreeMap::new()
    }

    /// Ends the connection to a server that was removed or changed.
    pub async fn close(&self, namespace: &str) {
        self.open.lock().await.remove(namespace);
    }
}
