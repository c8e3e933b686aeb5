//! The fast path of the client: a tool call of the newer era over HTTP without rmcp's client.
//!
//! That era has no sessions, so a call is one HTTP exchange; rmcp would only pass it through several tasks,
//! each of which costs a wake-up. A client without a [`Direct`] sends every call through rmcp and gets the
//! same results. `docs/fast-paths.md` tells what it buys, how to switch it off and which test compares both.

mod call;
mod indirect;

use std::sync::atomic::{AtomicI64, Ordering};

use rmcp::{model::ClientConfig, transport::common::http_header::BASE64_HEADER_PREFIX};
use serde_json::{Map, Value};
use tokio_util::task::TaskTracker;

use self::indirect::IndirectTools;
use crate::exchange::Http;

pub use self::{call::DirectCall, indirect::has_header_arguments};

/// The first request id of direct calls. Larger than any id that rmcp assigns.
const FIRST_ID: i64 = 1 << 32;

/// Calls the tools of one server directly, as far as that is possible.
#[derive(Debug)]
pub struct Direct {
    http: Http,
    /// The client info and capabilities that were sent in the handshake.
    client_config: ClientConfig,
    /// Runs the work that remains after a response.
    tasks: TaskTracker,
    indirect: IndirectTools,
    next_id: AtomicI64,
}

impl Direct {
    pub fn new(http: Http, client_config: ClientConfig, tasks: TaskTracker) -> Self {
        let (indirect, next_id) = (IndirectTools::default(), AtomicI64::new(FIRST_ID));
        Self { http, client_config, tasks, indirect, next_id }
    }

    /// Returns a call of this tool on a connection of the newer era or not. `None`: rmcp has to call it.
    pub fn prepare(&self, is_newer: bool, tool: &str) -> Option<DirectCall<'_>> {
        (is_newer && is_header_safe(tool) && !self.indirect.contains(tool))
            .then(|| DirectCall { direct: self, id: self.next_id.fetch_add(1, Ordering::Relaxed) })
    }

    /// Learns from a complete listing, given as names and input schemas, which tools rmcp has to call.
    pub fn learn<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t Map<String, Value>)>) {
        self.indirect.replace(tools);
    }
}

/// Returns whether a tool name can be sent in a header without encoding.
fn is_header_safe(name: &str) -> bool {
    name.trim() == name
        && name.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !name.starts_with(BASE64_HEADER_PREFIX)
}
