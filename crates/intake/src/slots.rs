//! Slots: limit how many messages are processed at a time.

use std::{num::NonZeroUsize, sync::Arc};

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The slots of one pool, or of several that share them. Clones are the same slots.
#[derive(Clone, Debug)]
pub struct Slots {
    semaphore: Arc<Semaphore>,
    size: usize,
    /// How many pools share them.
    pools: usize,
}

impl Slots {
    /// Creates the slots of one pool.
    pub fn new(size: NonZeroUsize) -> Self {
        Self::shared(size, NonZeroUsize::MIN)
    }

    /// Creates slots that as many pools share. A pull request reserves slots while it is open, so each of
    /// these pools asks for its part of the free ones, and asks again after a short time.
    pub fn shared(size: NonZeroUsize, pools: NonZeroUsize) -> Self {
        let size = size.get();
        Self { semaphore: Arc::new(Semaphore::new(size)), size, pools: pools.get() }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.pools > 1
    }

    pub(crate) fn free(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Waits for a free slot. Cancel-safe: a slot that is not taken stays free. Fair: a pool that waits is
    /// served before one that begins to. `None` is never returned, since nothing closes the semaphore.
    pub(crate) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.semaphore).acquire_owned().await.ok()
    }

    /// Adds the other free slots to one, or this pool's part of them.
    pub(crate) fn add_free(&self, acquired: &mut OwnedSemaphorePermit) {
        let part = (self.free() + 1).div_ceil(self.pools) - 1;
        let more = u32::try_from(part).unwrap_or(u32::MAX);
        if more > 0
            && let Some(Ok(rest)) = Arc::clone(&self.semaphore).acquire_many_owned(more).now_or_never()
        {
            acquired.merge(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(size: usize, pools: usize) -> Slots {
        Slots::shared(size.try_into().unwrap(), pools.try_into().unwrap())
    }

    async fn take(slots: &Slots) -> OwnedSemaphorePermit {
        let mut acquired = slots.acquire().await.unwrap();
        slots.add_free(&mut acquired);
        acquired
    }

    #[tokio::test]
    async fn pool_takes_all_free_slots_unless_it_shares_them() {
        assert_eq!(take(&slots(5, 1)).await.num_permits(), 5);
        let shared = slots(5, 2);
        let first = take(&shared).await;
        let second = take(&shared.clone()).await;
        assert_eq!((first.num_permits(), second.num_permits(), shared.free()), (3, 1, 1));
        assert_eq!(take(&slots(1, 3)).await.num_permits(), 1);
    }

    #[tokio::test]
    async fn pool_that_waits_gets_the_slot_that_another_gives_back() {
        let shared = slots(1, 2);
        let first = take(&shared).await;
        let mut waiting = Box::pin(shared.acquire());
        assert!((&mut waiting).now_or_never().is_none());
        drop(first);
        assert!(shared.acquire().now_or_never().is_none(), "the other pool was first");
        assert!(waiting.await.is_some());
    }
}
