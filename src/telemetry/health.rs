//! Readiness of the instance, and what prevents it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use subjects::{Backend, BackendState, InstanceState, Kind};
use tokio::sync::watch;
use tracing::{info, warn};

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

impl Blocker {
    /// Returns the backend whose outage this is.
    fn backend(self) -> Option<Backend> {
        match self {
            Self::Inference => Some(Backend::Model),
            Self::Gateway => Some(Backend::Gateway),
            Self::Starting | Self::Nats | Self::Storage | Self::Pull(_) | Self::Draining => None,
        }
    }
}

type Blockers = BTreeMap<Blocker, String>;
type Backends = BTreeMap<Backend, BackendState>;

/// Stops pulling handoffs while something that each needs is unavailable.
pub(crate) type Breaker = intake::Breaker<Health>;

/// Tracks whether this instance pulls handoffs, and if not, why, and which backends it reaches.
#[derive(Debug)]
pub(crate) struct Health {
    blockers: Mutex<Blockers>,
    backends: Mutex<Backends>,
    /// Changes with the state of the instance and of its backends.
    changes: watch::Sender<()>,
}

impl Health {
    pub(crate) fn starting() -> Self {
        Self {
            blockers: Mutex::new(BTreeMap::from([(Blocker::Starting, "starting".to_owned())])),
            backends: Mutex::default(),
            changes: watch::channel(()).0,
        }
    }

    pub(crate) fn block(&self, blocker: Blocker, why: impl Into<String>) {
        self.change(|blockers| blockers.insert(blocker, why.into()));
    }

    pub(crate) fn clear(&self, blocker: Blocker) {
        self.change(|blockers| blockers.remove(&blocker));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Blockers) -> T) {
        let mut blockers = lock(&self.blockers);
        let before = state_of(&blockers);
        change(&mut blockers);
        if state_of(&blockers) != before {
            self.changes.send_replace(());
        }
    }

    /// G14: sets whether what is needed was reached, if it is a backend, and logs a change.
    fn set_backend(&self, needed: Blocker, state: BackendState, why: &str) {
        let Some(backend) = needed.backend() else { return };
        let before = lock(&self.backends).insert(backend, state);
        match (before, state) {
            (Some(before), state) if before == state => return,
            (None, BackendState::Connected) => info!(?backend, "Backend connected."),
            (Some(_), BackendState::Connected) => info!(?backend, "Backend connection restored."),
            (None, BackendState::Lost) => warn!(?backend, why, "Backend not reachable; retrying."),
            (Some(_), BackendState::Lost) => warn!(?backend, why, "Backend connection lost; retrying."),
        }
        self.changes.send_replace(());
    }

    /// Returns the backends that were called, and whether they are reached.
    pub(crate) fn backends(&self) -> Backends {
        lock(&self.backends).clone()
    }

    /// Returns a receiver that is notified when the state of the instance or of a backend changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns whether the instance has started and is not stopping.
    pub(crate) fn is_serving(&self) -> bool {
        let blockers = lock(&self.blockers);
        !blockers.contains_key(&Blocker::Starting) && !blockers.contains_key(&Blocker::Draining)
    }

    /// Returns the reasons why the instance is not ready; empty if it is.
    pub(crate) fn reasons_not_ready(&self) -> Vec<String> {
        lock(&self.blockers).values().cloned().collect()
    }

    pub(crate) fn state(&self) -> InstanceState {
        state_of(&lock(&self.blockers))
    }
}

impl intake::Health for Health {
    type Blocker = Blocker;

    const PULLED: &'static str = "handoffs";

    fn block(&self, blocker: Blocker, why: String) {
        Self::block(self, blocker, why);
    }

    fn clear(&self, blocker: Blocker) {
        Self::clear(self, blocker);
    }

    fn note_connected(&self, blocker: Blocker) {
        self.set_backend(blocker, BackendState::Connected, "");
    }

    fn note_lost(&self, blocker: Blocker, why: &str) {
        self.set_backend(blocker, BackendState::Lost, why);
    }
}

fn state_of(blockers: &Blockers) -> InstanceState {
    if blockers.contains_key(&Blocker::Draining) {
        InstanceState::Draining
    } else if blockers.is_empty() {
        InstanceState::Ready
    } else {
        InstanceState::NotReady
    }
}

/// A panic cannot leave a map half written.
fn lock<T>(map: &Mutex<T>) -> MutexGuard<'_, T> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use intake::Health as _;

    use super::*;

    /// G14: the state of a backend is known from its first call on, and only a change is announced.
    #[test]
    fn backend_changes_are_announced_once() {
        let health = Health::starting();
        let mut changes = health.changes();
        assert!(health.backends().is_empty(), "nothing was called yet");
        for state in [BackendState::Lost, BackendState::Connected, BackendState::Lost] {
            for _ in 0..2 {
                match state {
                    BackendState::Connected => health.note_connected(Blocker::Inference),
                    BackendState::Lost => health.note_lost(Blocker::Inference, "connection refused"),
                }
            }
            assert_eq!(health.backends().get(&Backend::Model), Some(&state));
            assert!(changes.has_changed().unwrap());
            changes.mark_unchanged();
        }
        health.note_lost(Blocker::Inference, "connection refused");
        assert!(!changes.has_changed().unwrap(), "only a change is one");
    }
}
