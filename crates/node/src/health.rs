//! Whether the node takes jobs, and if not, why.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use subjects::node::NodeState;

/// Something that keeps a node from taking jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocker {
    Starting,
    Nats,
    Storage,
    /// The node cannot run any job: its sandboxes fail.
    Machine,
    /// The gateway refuses this node's token.
    Token,
    /// The node cannot write the audit of what jobs call.
    Audit,
    /// The queue with this name cannot be pulled from.
    Pull(String),
    /// Another process reports under this node's id.
    Duplicate,
    Cordoned,
    Stopping,
}

/// Tracks what keeps the node from taking jobs.
#[derive(Debug)]
pub(crate) struct Health(Mutex<BTreeMap<Blocker, String>>);

impl Health {
    pub(crate) fn starting() -> Self {
        Self(Mutex::new(BTreeMap::from([(Blocker::Starting, "starting".to_owned())])))
    }

    pub(crate) fn set(&self, blocker: Blocker, why: impl Into<String>) {
        self.lock().insert(blocker, why.into());
    }

    pub(crate) fn unset(&self, blocker: &Blocker) {
        self.lock().remove(blocker);
    }

    /// Returns the reasons why the node takes no jobs; empty if it does.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    /// Returns whether a queue cannot be pulled from.
    pub(crate) fn cannot_pull(&self) -> bool {
        self.lock().keys().any(|blocker| matches!(blocker, Blocker::Pull(_)))
    }

    pub(crate) fn state(&self) -> NodeState {
        let blockers = self.lock();
        if blockers.contains_key(&Blocker::Stopping) {
            NodeState::Stopping
        } else if blockers.contains_key(&Blocker::Cordoned) {
            NodeState::Cordoned
        } else if blockers.is_empty() {
            NodeState::Ready
        } else {
            NodeState::NotReady
        }
    }

    /// The map is never left half changed, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Blocker, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl intake::Health for Health {
    type Blocker = Blocker;

    const PULLED: &'static str = "jobs";

    fn block(&self, blocker: Blocker, why: String) {
        self.set(blocker, why);
    }

    fn clear(&self, blocker: Blocker) {
        self.unset(&blocker);
    }
}
