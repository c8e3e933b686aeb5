use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};
use tokio::sync::{Mutex, MutexGuard};
use tracing::warn;

use crate::{
    clock,
    store::{
        Store,
        entity::{login, token},
    },
};

/// The store is asked for the hashes no more often.
const RENEW_AFTER: Duration = Duration::from_secs(1);
/// What was read this long ago is read again, so that a token that is revoked or expired does not stay known.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// The hashes of good tokens and console sessions, as they were a moment ago. This decides about pace and nothing else: a token
/// that was revoked since is let in here, and denied a moment later.
#[derive(Debug, Default)]
pub(super) struct Known {
    hashes: RwLock<HashSet<String>>,
    /// When the store was asked last. One asks, the others wait for it.
    asked: Mutex<Option<Instant>>,
}

impl Known {
    pub(super) fn has_any(&self, hashes: &[String]) -> bool {
        let known = self.hashes.read().unwrap_or_else(PoisonError::into_inner);
        hashes.iter().any(|hash| known.contains(hash))
    }

    /// Takes in a hash that the store just said is good.
    pub(super) fn learn(&self, hash: String) {
        self.hashes.write().unwrap_or_else(PoisonError::into_inner).insert(hash);
    }

    pub(super) async fn renew(&self, store: &Store) {
        let asked = self.asked.lock().await;
        if asked.is_none_or(|asked| asked.elapsed() >= RENEW_AFTER) {
            self.load(store, asked).await;
        }
    }

    /// Renews what is stale. One does; the others go on with what there is.
    pub(super) async fn keep_fresh(&self, store: &Store) {
        let Ok(asked) = self.asked.try_lock() else { return };
        if asked.is_none_or(|asked| asked.elapsed() >= STALE_AFTER) {
            self.load(store, asked).await;
        }
    }

    async fn load(&self, store: &Store, mut asked: MutexGuard<'_, Option<Instant>>) {
        match load(store).await {
            Ok(hashes) => *self.hashes.write().unwrap_or_else(PoisonError::into_inner) = hashes,
            Err(error) => warn!(%error, "Token hashes not read; using the previous ones."),
        }
        *asked = Some(Instant::now());
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
