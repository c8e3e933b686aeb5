//! Lets calls wait for an earlier call with the same idempotency key.
//!
//! A call of this process wakes its waiters when it ends. For a call of another gateway one waiter polls the
//! store with growing intervals, and wakes the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use broker::retry::RetryDelays;
use sea_orm::{DbErr, EntityTrait};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;

use store::{Store, clock, entity::in_flight};

const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Calls with a key that are running, by call id.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyedCalls(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Calls of this process; each token is cancelled when its call ends.
    local: HashMap<String, CancellationToken>,
    /// Calls of other gateways that calls of this process wait for.
    remote: HashMap<String, Weak<RemoteCall>>,
}

/// A call of another gateway, kept while calls of this process wait for it.
#[derive(Debug, Default)]
struct RemoteCall {
    done: CancellationToken,
    /// Held by the waiter that polls the store.
    polling: tokio::sync::Mutex<()>,
}

/// Guard of a call of this process that has a key. Dropping it wakes all waiters.
#[derive(Debug)]
pub(super) struct KeyedCall {
    calls: KeyedCalls,
    call_id: String,
}

impl Drop for KeyedCall {
    fn drop(&mut self) {
        if let Some(done) = self.calls.state().local.remove(&self.call_id) {
            done.cancel();
        }
    }
}

impl KeyedCalls {
    /// Registers a call of this process. Must happen before the call claims its key, so that a later call
    /// with the same key finds it here.
    pub(super) fn register(&self, call_id: &str) -> KeyedCall {
        self.state().local.insert(call_id.to_owned(), CancellationToken::new());
        KeyedCall { calls: self.clone(), call_id: call_id.to_owned() }
    }

    /// Waits until the call has its row, or until its announcement has expired because its gateway is gone.
    pub(super) async fn wait_until_done(&self, store: &Store, call_id: &str) -> Result<(), DbErr> {
        let local = self.state().local.get(call_id).cloned();
        if let Some(done) = local {
            done.cancelled().await;
            return Ok(());
        }
        let remote = self.remote(call_id);
        let _polling = select! {
            () = remote.done.cancelled() => return Ok(()),
            polling = remote.polling.lock() => polling,
        };
        let mut pauses = RetryDelays::forever(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
        // The waiter that polled before may have seen the call end in the meantime.
        while !remote.done.is_cancelled() && check_in_flight(store, call_id).await? {
            sleep(pauses.next_delay().unwrap_or(MAX_POLL_INTERVAL)).await;
        }
        remote.done.cancel();
        Ok(())
    }

    fn remote(&self, call_id: &str) -> Arc<RemoteCall> {
        let mut state = self.state();
        if let Some(known) = state.remote.get(call_id).and_then(Weak::upgrade) {
            return known;
        }
        state.remote.retain(|_, call| call.strong_count() > 0);
        let new = Arc::<RemoteCall>::default();
        state.remote.insert(call_id.to_owned(), Arc::downgrade(&new));
        new
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Queries whether the call is announced in the store and its announcement has not expired.
async fn check_in_flight(store: &Store, call_id: &str) -> Result<bool, DbErr> {
    let found = in_flight::Entity::find_by_id(call_id).one(store.read()).await?;
    Ok(found.is_some_and(|call| call.expires_at > clock::now()))
}
