//! State shared by all leases of a node.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use broker::Chain;
use nkeys::KeyPair;
use subjects::NodeId;
use tokio::sync::{Notify, watch};

use crate::{Clock, EdgeLimits, local::LocalTools};

/// State shared by all sessions of a node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) node: NodeId,
    pub(crate) key: Arc<KeyPair>,
    pub(crate) gateway: mcp::Client,
    /// The only keys whose leases are accepted. If empty: those of the leases that the gateway returns.
    pub(crate) trusted_keys: Vec<String>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) limits: EdgeLimits,
    pub(crate) local: LocalTools,
    pub(crate) counts: Counters,
    /// Woken when a line was appended to any audit file.
    pub(crate) appended: Notify,
    /// Why a file could not be written last.
    pub(crate) write_failure: watch::Sender<String>,
}

impl Shared {
    /// Returns whether a lease that the gateway returned may be signed with this key. Gateways on one store
    /// have a key each.
    pub(crate) fn trusts(&self, key: &str) -> bool {
        self.trusted_keys.is_empty() || self.trusted_keys.iter().any(|trusted| trusted == key)
    }

    /// Records that a file of this node could not be written.
    pub(crate) fn note_write_failure(&self, error: &dyn std::error::Error) {
        self.write_failure.send_replace(Chain(error).to_string());
    }
}

/// Counters since the edge was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounts {
    /// Calls of tools of this node that were permitted and made.
    pub allowed: u64,
    pub denied: u64,
    /// Calls that the gateway answered.
    pub passed_on: u64,
    /// Calls that were denied because an audit was full.
    pub full: u64,
    /// Lines that were shipped.
    pub shipped: u64,
    /// Leases in use.
    pub leases: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) passed_on: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) shipped: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self, leases: u64) -> EdgeCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EdgeCounts {
            allowed: read(&self.allowed),
            denied: read(&self.denied),
            passed_on: read(&self.passed_on),
            full: read(&self.full),
            shipped: read(&self.shipped),
            leases,
        }
    }
}
