//! Limits the number of connections, and evicts unauthenticated ones when all slots are in use.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Whether a connection has presented a valid token. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct ConnectionAuth(Arc<AtomicBool>);

impl ConnectionAuth {
    pub fn mark_authenticated(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_authenticated(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A fixed number of connection slots.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    free: Arc<Semaphore>,
    occupied: Mutex<Occupied>,
}

#[derive(Debug, Default)]
struct Occupied {
    next: u64,
    /// Sorted by age, oldest first.
    by_number: BTreeMap<u64, (ConnectionAuth, CancellationToken)>,
}

/// The slot of one connection; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    number: u64,
    auth: ConnectionAuth,
    evict: CancellationToken,
    slots: Arc<ConnectionSlots>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionSlots {
    pub(super) fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), occupied: Mutex::default() }
    }

    /// Acquires a slot. If none is free, evicts the oldest unauthenticated connection and waits for a slot.
    pub(super) async fn acquire(slots: &Arc<Self>) -> ConnectionSlot {
        let permit = match slots.free.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                slots.evict_oldest();
                // The semaphore is never closed, so this does not fail.
                slots.free.clone().acquire_owned().await.ok()
            }
        };
        let (auth, evict) = (ConnectionAuth::default(), CancellationToken::new());
        let mut occupied = slots.occupied();
        let number = occupied.next;
        occupied.next += 1;
        occupied.by_number.insert(number, (auth.clone(), evict.clone()));
        drop(occupied);
        ConnectionSlot { number, auth, evict, slots: slots.clone(), _permit: permit }
    }

    fn evict_oldest(&self) {
        let occupied = self.occupied();
        let mut candidates = occupied
            .by_number
            .values()
            .filter(|(auth, evict)| !auth.is_authenticated() && !evict.is_cancelled());
        if let Some((_, evict)) = candidates.next() {
            evict.cancel();
        }
    }

    fn occupied(&self) -> MutexGuard<'_, Occupied> {
        self.occupied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    pub(super) fn auth(&self) -> ConnectionAuth {
        self.auth.clone()
    }

    /// Waits until the connection has to be closed.
    pub(super) async fn evicted(&self) {
        self.evict.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.occupied().by_number.remove(&self.number);
    }
}
