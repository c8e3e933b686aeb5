//! Caches the hashes of valid tokens and console sessions. Used only to exempt callers from rate limits,
//! never to authenticate them.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use tokio::sync::{Mutex, MutexGuard};
use tracing::warn;

use store::{
    Store, clock,
    entity::{login, token},
};

/// The hashes are loaded at most this often.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Hashes older than this are loaded again, so that a revoked or expired token does not stay known.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// The hashes of valid tokens and console sessions when they were last loaded. A token that was revoked since
/// is still exempt from the rate limit, and denied when it is authenticated.
#[derive(Debug, Default)]
pub(super) struct KnownSecrets {
    hashes: RwLock<HashSet<String>>,
    /// Time of the last load. Locked during a load, so that concurrent requests load once.
    loaded_at: Mutex<Option<Instant>>,
}

impl KnownSecrets {
    pub(super) fn contains_any(&self, hashes: &[String]) -> bool {
        let known = self.hashes.read().unwrap_or_else(PoisonError::into_inner);
        hashes.iter().any(|hash| known.contains(hash))
    }

    /// Adds a hash that the store has just confirmed.
    pub(super) fn insert(&self, hash: String) {
        self.hashes.write().unwrap_or_else(PoisonError::into_inner).insert(hash);
    }

    /// Loads the hashes, unless that was done within [`MIN_REFRESH_INTERVAL`].
    pub(super) async fn refresh(&self, store: &Store) {
        let loaded_at = self.loaded_at.lock().await;
        if loaded_at.is_none_or(|loaded_at| loaded_at.elapsed() >= MIN_REFRESH_INTERVAL) {
            self.load(store, loaded_at).await;
        }
    }

    /// Loads the hashes if they are stale. Does not wait if another request is loading them.
    pub(super) async fn refresh_if_stale(&self, store: &Store) {
        let Ok(loaded_at) = self.loaded_at.try_lock() else { return };
        if loaded_at.is_none_or(|loaded_at| loaded_at.elapsed() >= STALE_AFTER) {
            self.load(store, loaded_at).await;
        }
    }

    async fn load(&self, store: &Store, mut loaded_at: MutexGuard<'_, Option<Instant>>) {
        match load(store).await {
            Ok(hashes) => *self.hashes.write().unwrap_or_else(PoisonError::into_inner) = hashes,
            Err(error) => warn!(%error, "Token hashes not read; using the previous ones."),
        }
        *loaded_at = Some(Instant::now());
    }
}

async fn load(store: &Store) -> Result<HashSet<String>, DbErr> {
    let (db, now) = (store.read(), clock::now());
    let tokens = token::Entity::find()
        .filter(token::Column::RevokedAt.is_null())
        .filter(token::Column::ExpiresAt.gt(now))
        .select_only()
        .column(token::Column::Hash);
    let sessions = login::Entity::find()
        .filter(login::Column::ExpiresAt.gt(now))
        .select_only()
        .column(login::Column::Hash);
    let mut hashes: HashSet<String> = tokens.into_tuple::<String>().all(db).await?.into_iter().collect();
    hashes.extend(sessions.into_tuple::<String>().all(db).await?);
    Ok(hashes)
}
