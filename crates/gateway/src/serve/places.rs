use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// A mark on a connection: a good token was shown on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trust(Arc<AtomicBool>);

impl Trust {
    pub(crate) fn gain(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_gained(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The connections there may be.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// By age.
    by_number: BTreeMap<u64, (Trust, CancellationToken)>,
}

/// One connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    trust: Trust,
    go: CancellationToken,
    places: Arc<Places>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(max)), taken: Mutex::default() }
    }

    /// Takes a place; if there is none, the oldest connection without trust makes room. Waits when all have it.
    pub(super) async fn take(places: &Arc<Self>) -> Place {
        let permit = match places.free.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => {
                places.make_room();
                // Closed never: then there would be no places at all.
                places.free.clone().acquire_owned().await.ok()
            }
        };
        let (trust, go) = (Trust::default(), CancellationToken::new());
        let mut taken = places.taken();
        let number = taken.next;
        taken.next += 1;
        taken.by_number.insert(number, (trust.clone(), go.clone()));
        drop(taken);
        Place { number, trust, go, places: places.clone(), _permit: permit }
    }

    fn make_room(&self) {
        let taken = self.taken();
        let mut strangers =
            taken.by_number.values().filter(|(trust, go)| !trust.is_gained() && !go.is_cancelled());
        if let Some((_, go)) = strangers.next() {
            go.cancel();
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn trust(&self) -> Trust {
        self.trust.clone()
    }

    pub(super) async fn must_go(&self) {
        self.go.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().by_number.remove(&self.number);
    }
}
