//! Calls that wait for an earlier one with their key.
//!
//! A call of this process wakes those that wait for it. A call of another gateway is looked for in the store, by one of
//! those that wait for it and ever more seldom; the others wait for that one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use sea_orm::{DbErr, EntityTrait};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    store::{Store, entity::in_flight},
};

const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Who waits for which call, by call id.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    own: HashMap<String, CancellationToken>,
    elsewhere: HashMap<String, Weak<Elsewhere>>,
}

/// A call of another gateway, as long as calls of this one wait for it.
#[derive(Debug, Default)]
struct Elsewhere {
    is_over: CancellationToken,
    /// Held by the one that looks.
    looking: tokio::sync::Mutex<()>,
}

/// A call with a key that runs here. Dropped, it wakes all that wait for it.
#[derive(Debug)]
pub(super) struct Running {
    waiting: Waiting,
    call_id: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(is_over) = self.waiting.lines().own.remove(&self.call_id) {
            is_over.cancel();
        }
    }
}

impl Waiting {
    /// Registers a call of this process. Before it takes its key, so that nobody can find it unregistered.
    pub(super) fn register(&self, call_id: &str) -> Running {
        self.lines().own.insert(call_id.to_owned(), CancellationToken::new());
        Running { waiting: self.clone(), call_id: call_id.to_owned() }
    }

    /// Waits until the call is over: it has its row, or its gateway is gone.
    pub(super) async fn until_over(&self, store: &Store, call_id: &str) -> Result<(), DbErr> {
        let own = self.lines().own.get(call_id).cloned();
        if let Some(is_over) = own {
            is_over.cancelled().await;
            return Ok(());
        }
        let elsewhere = self.elsewhere(call_id);
        let _looking = select! {
            () = elsewhere.is_over.cancelled() => return Ok(()),
            looking = elsewhere.looking.lock() => looking,
        };
        let mut pause = FIRST_LOOK;
        // The one that looked before may have found it over in the meantime.
        while !elsewhere.is_over.is_cancelled() && is_at_work(store, call_id).await? {
            sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
        elsewhere.is_over.cancel();
        Ok(())
    }

    fn elsewhere(&self, call_id: &str) -> Arc<Elsewhere> {
        let mut lines = self.lines();
        if let Some(known) = lines.elsewhere.get(call_id).and_then(Weak::upgrade) {
            return known;
        }
        lines.elsewhere.retain(|_, line| line.strong_count() > 0);
        let new = Arc::<Elsewhere>::default();
        lines.elsewhere.insert(call_id.to_owned(), Arc::downgrade(&new));
        new
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn is_at_work(store: &Store, call_id: &str) -> Result<bool, DbErr> {
    let found = in_flight::Entity::find_by_id(call_id).one(store.read()).await?;
    Ok(found.is_some_and(|call| call.expires_at > clock::now()))
}
