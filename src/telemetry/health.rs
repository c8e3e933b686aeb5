//! Readiness of the instance, and what prevents it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use subjects::{InstanceState, Kind};

/// Something that keeps an instance from being ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocker {
    Starting,
    Nats,
    Storage,
    Inference,
    Gateway,
    Pull(Kind),
    Draining,
}

/// Tracks whether this instance pulls handoffs, and if not, why.
#[derive(Debug)]
pub(crate) struct Health {
    blockers: Mutex<BTreeMap<Blocker, String>>,
}

impl Health {
    pub(crate) fn starting() -> Self {
        Self { blockers: Mutex::new(BTreeMap::from([(Blocker::Starting, "starting".to_owned())])) }
    }

    pub(crate) fn block(&self, blocker: Blocker, why: impl Into<String>) {
        self.lock().insert(blocker, why.into());
    }

    pub(crate) fn clear(&self, blocker: Blocker) {
        self.lock().remove(&blocker);
    }

    /// Returns the reasons why the instance is not ready; empty if it is.
    pub(crate) fn reasons_not_ready(&self) -> Vec<String> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn state(&self) -> InstanceState {
        let blockers = self.lock();
        if blockers.contains_key(&Blocker::Draining) {
            InstanceState::Draining
        } else if blockers.is_empty() {
            InstanceState::Ready
        } else {
            InstanceState::NotReady
        }
    }

    /// A panic cannot leave the map half written.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Blocker, String>> {
        self.blockers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
