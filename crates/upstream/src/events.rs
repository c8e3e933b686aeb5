//! What a server says unasked: progress, and that its tools changed. What it asks is declined.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcp::{Tap, introduction, told};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{ClientConfig, ErrorCode, ProgressNotificationParam, ProgressToken},
    service::{NotificationContext, RequestContext},
};
use tokio::sync::{mpsc, watch};

const OUR_NAME: &str = "cynode-mcp-gateway";

/// How far a call is, in the server's words.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub progress: f64,
    pub total: Option<f64>,
    pub message: Option<String>,
}

/// Shared by the connections to one server.
#[derive(Clone, Debug)]
pub(crate) struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    changes: watch::Sender<u64>,
    /// Who wants to know how far which call is.
    watched: Mutex<HashMap<ProgressToken, mpsc::Sender<Progress>>>,
}

/// Passes progress on as long as it lives.
#[derive(Debug)]
pub(crate) struct Watch {
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

    pub(crate) fn watch(&self, token: ProgressToken, to: mpsc::Sender<Progress>) -> Watch {
        self.watched().insert(token.clone(), to);
        Watch { events: self.clone(), token }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<Progress>>> {
        self.0.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.events.watched().remove(&self.token);
    }
}

impl Tap for Events {
    fn progress(&self, of: ProgressNotificationParam) {
        let watched = self.watched();
        let Some(to) = watched.get(&of.progress_token) else { return };
        let message = of.message.map(|message| told(&message));
        // Full, or nobody listens any more: how far it is matters less than that nobody waits for it.
        drop(to.try_send(Progress { progress: of.progress, total: of.total, message }));
    }

    fn tools_changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }
}

impl ClientHandler for Events {
    fn get_info(&self) -> ClientConfig {
        introduction(OUR_NAME)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed();
    }

    /// rmcp's own answer would be that there are none, which is to say that we do have roots.
    #[expect(deprecated, reason = "servers of the older era may ask")]
    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "roots/list", None))
    }
}
