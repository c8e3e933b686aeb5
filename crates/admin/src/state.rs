//! Shared state of the administration listener: the parts of the gateway and the state that requests share.

use std::{net::SocketAddr, ops::Deref, path::PathBuf, sync::Arc, time::Duration};

use access::{admin_token::AdminToken, unauthenticated::UnauthenticatedLimiter};
use audit::{Ledger, Seal};
use broker::OnDemand;
use control::{LeaseIssuer, Memories, Sandboxes};
use nkeys::KeyPair;
use registry::{catalogue::CatalogueCache, upstreams::Upstreams};
use store::Store;
use subjects::ScopeId;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{chat_keys::ChatKeys, orchestrator::Orchestrator, work_cache::WorkCache};

/// Settings of the administration listener.
#[derive(Clone, Debug)]
pub struct Settings {
    pub listen: SocketAddr,
    pub hosts: Vec<String>,
    /// File with the first administrator's token; created if it is missing.
    pub token_file: PathBuf,
    /// Lifetime of a token that is created for that file.
    pub token_lives: Duration,
    /// Lifetime of a console session.
    pub session: Duration,
    /// Whether administrators use TLS, so that cookies are marked `Secure`.
    pub https: bool,
    /// The user that the first administrator is in chats.
    pub chat_user: ScopeId,
    /// The orchestrator with which the console chats, without a slash at the end.
    pub orchestrator_url: Option<Url>,
}

impl Settings {
    pub fn token(&self) -> AdminToken {
        AdminToken {
            file: self.token_file.clone(),
            lifetime: self.token_lives,
            chat_user: self.chat_user.to_string(),
        }
    }
}

/// The parts of the gateway that administration uses.
#[derive(Debug)]
pub struct Resources {
    pub store: Store,
    pub ledger: Ledger,
    pub catalogue: Arc<CatalogueCache>,
    pub upstreams: Arc<Upstreams>,
    pub seal: Arc<Seal>,
    pub leases: Arc<LeaseIssuer>,
    pub sandboxes: Arc<Sandboxes>,
    pub memories: Arc<Memories>,
    pub nats: Option<Arc<OnDemand>>,
    /// Signs replayed handoffs.
    pub signing_key: Option<KeyPair>,
    pub unauthenticated: Arc<UnauthenticatedLimiter>,
    pub settings: Settings,
    /// Whether upstreams may be registered that the gateway starts as child processes.
    pub allow_stdio: bool,
    /// Ends streaming responses, which have no end of their own.
    pub stop: CancellationToken,
}

/// The state of the administration listener. REST handlers, console pages and operations share it.
#[derive(Debug)]
pub struct Admin {
    resources: Resources,
    /// The last answer of NATS about queues and handoffs, shared by concurrent readers.
    pub(crate) work_cache: WorkCache,
    /// The orchestrator with which the console chats, if it is configured.
    pub(crate) orchestrator: Option<Orchestrator>,
    /// The API keys with which the console chats.
    pub(crate) chat_keys: ChatKeys,
    /// Held while the first administrator's token is rotated: one rotation at a time.
    pub(crate) rotation_lock: Mutex<()>,
}

impl Deref for Admin {
    type Target = Resources;

    fn deref(&self) -> &Resources {
        &self.resources
    }
}

impl Admin {
    pub fn new(resources: Resources) -> Arc<Self> {
        let orchestrator = resources.settings.orchestrator_url.as_ref().map(Orchestrator::new);
        Arc::new(Self {
            resources,
            work_cache: WorkCache::default(),
            orchestrator,
            chat_keys: ChatKeys::default(),
            rotation_lock: Mutex::default(),
        })
    }
}
