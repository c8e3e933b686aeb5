//! Limits the time that models take for one question. The time for which the permit to ask them is awaited is
//! not theirs: NATS may be away for long.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{NoLease, Permit};

/// The rest of the time that models may take; `None` if it is not limited.
#[derive(Debug)]
pub(super) struct TimeLimit(Option<Duration>);

impl TimeLimit {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self(limit)
    }

    /// Returns whether no time is left.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_some_and(|left| left.is_zero())
    }

    /// Awaits the reply to one try, which is made under `permit`, and counts the time. Returns `None` if none
    /// is left.
    pub(super) async fn within<T>(
        &mut self,
        permit: &CountedPermit<'_>,
        asking: impl Future<Output = T>,
    ) -> Option<T> {
        let Some(left) = self.0 else { return Some(asking.await) };
        let started = Instant::now();
        let mut asking = pin!(asking);
        let mut over = pin!(tokio::time::sleep(left));
        let asked = poll_fn(|context| {
            if let Poll::Ready(asked) = asking.as_mut().poll(context) {
                return Poll::Ready(Some(asked));
            }
            // The clock stands still until the permit is there, which wakes this task.
            let Some(waited) = permit.waited() else { return Poll::Pending };
            let Some(until) = started.checked_add(left.saturating_add(waited)) else { return Poll::Pending };
            if over.deadline() != until {
                over.as_mut().reset(until);
            }
            over.as_mut().poll(context).map(|()| None)
        })
        .await;
        let taken = started.elapsed().saturating_sub(permit.waited().unwrap_or_default());
        self.0 = Some(if asked.is_some() { left.saturating_sub(taken) } else { Duration::ZERO });
        asked
    }
}

/// The permit of one try. Counts for how long it is awaited.
#[derive(Debug)]
pub(super) struct CountedPermit<'p> {
    permit: &'p dyn Permit,
    waits: Mutex<Waits>,
}

#[derive(Debug, Default)]
struct Waits {
    /// The time of the waits that have ended.
    ended: Duration,
    /// The start of the present one.
    since: Option<Instant>,
}

impl<'p> CountedPermit<'p> {
    pub(super) fn new(permit: &'p dyn Permit) -> Self {
        Self { permit, waits: Mutex::default() }
    }

    /// Returns for how long the permit was awaited so far; `None` while it is awaited.
    fn waited(&self) -> Option<Duration> {
        let waits = self.lock();
        waits.since.is_none().then_some(waits.ended)
    }

    fn lock(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit for CountedPermit<'_> {
    fn acquire(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.lock().since = Some(Instant::now());
            let _wait = WaitGuard(self);
            self.permit.acquire().await;
        })
    }

    fn lease(&self, is_expired: bool) -> BoxFuture<'_, Result<Arc<str>, NoLease>> {
        self.permit.lease(is_expired)
    }
}

/// Ends a wait on drop, also one that is given up.
struct WaitGuard<'w>(&'w CountedPermit<'w>);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.lock();
        let waited = waits.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        waits.ended += waited;
    }
}

#[cfg(test)]
mod tests;
