//! API keys: the gateway's user tokens. Only the hash of a key is sent or kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use broker::Chain;
use contract::key::{Check, Key};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::Timestamp;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    gateway::{CallError, Gateway},
    proven_secrets::ProvenSecrets,
};

/// Maximum number of keys remembered at the same time.
const MAX_REMEMBERED: usize = 10_000;

/// Resolves API keys, and remembers valid ones for a few seconds.
#[derive(Debug)]
pub(crate) struct Keys {
    gateway: Gateway,
    remember_for: Duration,
    known: Mutex<HashMap<String, Known>>,
    proven: ProvenSecrets,
    /// The keys of requests that are being answered, by id.
    in_use: Mutex<HashMap<String, Weak<InUse>>>,
}

/// A key of a request that is being answered.
#[derive(Debug)]
pub(crate) struct InUse {
    hash: String,
    revoked: CancellationToken,
}

impl InUse {
    /// Waits until the key is revoked.
    pub(crate) async fn revoked(&self) {
        self.revoked.cancelled().await;
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }
}

#[derive(Debug)]
struct Known {
    key: Arc<Key>,
    until: Instant,
}

impl Keys {
    pub(crate) fn new(gateway: Gateway, remember_for: Duration) -> Self {
        let (known, proven, in_use) = (Mutex::default(), ProvenSecrets::default(), Mutex::default());
        Self { gateway, remember_for, known, proven, in_use }
    }

    /// Returns the key if it was found valid a moment ago.
    pub(crate) fn remembered(&self, hash: &str) -> Option<Arc<Key>> {
        let known = self.known();
        known.get(hash).filter(|known| Instant::now() < known.until).map(|known| known.key.clone())
    }

    /// Returns whether the key was valid when it was last checked, however long ago that is.
    pub(crate) fn is_proven(&self, hash: &str) -> bool {
        self.proven.contains(hash)
    }

    /// Asks the gateway about a key. `None` if it is unknown, expired or revoked.
    pub(crate) async fn check(&self, hash: String) -> Result<Option<Arc<Key>>, CallError> {
        let asked_at = Instant::now();
        let Some(key) = self.gateway.call(&Check { hash: hash.clone() }).await?.key else {
            self.proven.remove(&hash);
            return Ok(None);
        };
        self.proven.insert(&hash);
        let key = Arc::new(key);
        let lives = key.expires_at.parse::<Timestamp>().map_or(Duration::ZERO, |expires| {
            Duration::try_from(expires.at() - OffsetDateTime::now_utc()).unwrap_or_default()
        });
        let until = asked_at + self.remember_for.min(lives);
        let mut known = self.known();
        if known.len() >= MAX_REMEMBERED {
            let now = Instant::now();
            known.retain(|_, known| now < known.until);
        }
        if known.len() < MAX_REMEMBERED {
            known.insert(hash, Known { key: key.clone(), until });
        }
        Ok(Some(key))
    }

    /// Returns what says that a key is revoked while its request is answered.
    pub(crate) fn watch(&self, key: &Key, hash: &str) -> Arc<InUse> {
        let mut in_use = lock(&self.in_use);
        if let Some(known) = in_use.get(&key.key_id).and_then(Weak::upgrade) {
            return known;
        }
        if in_use.len() >= MAX_REMEMBERED {
            in_use.retain(|_, known| known.strong_count() > 0);
        }
        let new = Arc::new(InUse { hash: hash.to_owned(), revoked: CancellationToken::new() });
        in_use.insert(key.key_id.clone(), Arc::downgrade(&new));
        new
    }

    /// Forgets a key that was revoked, and ends its requests. Its next use asks the gateway.
    pub(crate) fn revoke(&self, key_id: &str) {
        self.known().retain(|_, known| known.key.key_id != key_id);
        if let Some(used) = lock(&self.in_use).remove(key_id).and_then(|used| used.upgrade()) {
            used.revoked.cancel();
        }
    }

    /// Forgets all keys and asks about those of open requests, for when revocations may have been missed.
    pub(crate) async fn check_all(&self) {
        self.known().clear();
        self.check_in_use().await;
    }

    /// Asks about the keys of open requests, and ends those of keys that are expired or revoked.
    pub(crate) async fn check_in_use(&self) {
        let in_use: Vec<(String, Arc<InUse>)> = lock(&self.in_use)
            .iter()
            .filter_map(|(key_id, used)| Some((key_id.clone(), used.upgrade()?)))
            .collect();
        for (key_id, used) in in_use {
            match self.check(used.hash.clone()).await {
                Ok(None) => self.revoke(&key_id),
                Ok(Some(_)) => {}
                Err(error) => debug!(key_id, error = %Chain(&error), "Key of open requests not checked."),
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        lock(&self.known)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the hash under which the gateway knows a key.
pub(crate) fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}
