//! Notifications of an upstream: progress and changes of its tools. Its requests are declined.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcp::{Tap, client_config, sanitize};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{ClientConfig, ErrorCode, ProgressNotificationParam, ProgressToken},
    service::{NotificationContext, RequestContext},
};
use tokio::sync::{mpsc, watch};

const CLIENT_NAME: &str = "cynode-mcp-gateway";

/// A progress notification of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// Receives the notifications of all connections to one upstream.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    changes: watch::Sender<u64>,
    /// The receivers of progress, by progress token.
    watched: Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>,
}

/// Delivers progress until it is dropped.
#[derive(Debug)]
pub(crate) struct ProgressGuard {
    events: Events,
    token: ProgressToken,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared { changes: watch::Sender::new(0), watched: Mutex::default() }))
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn watch(&self, token: ProgressToken, to: mpsc::Sender<Progress>) -> ProgressGuard {
        self.watched().insert(token.clone(), to);
        ProgressGuard { events: self.clone(), token }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<Progress>>> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.events.watched().remove(&self.token);
    }
}

impl Tap for Events {
    fn progress(&self, of: ProgressNotificationParam) {
        let watched = self.watched();
        let Some(to) = watched.get(&of.progress_token) else { return };
        let message = of.message.map(|message| sanitize(&message));
        // Dropped if the channel is full or closed, since progress must not delay the call.
        drop(to.try_send(Progress { progress: of.progress, total: of.total, message }));
    }

    fn tools_changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }
}

impl ClientHandler for Events {
    fn get_info(&self) -> ClientConfig {
        client_config(CLIENT_NAME)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed();
    }

    /// Declines. rmcp's default is an empty list, which would mean that this client supports roots.
    #[expect(deprecated, reason = "servers of the older era may ask")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots/list", None))
    }
}
