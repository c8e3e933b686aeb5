//! API keys: the gateway's user tokens. Only the hash of a key is sent or kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use contract::key::{Check, Key};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::Timestamp;
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::gateway::{CallError, Gateway};

/// More keys than this are not remembered at the same time.
const MAX_REMEMBERED: usize = 10_000;

/// Resolves API keys, and remembers valid ones for a few seconds.
#[derive(Debug)]
pub(crate) struct Keys {
    gateway: Gateway,
    remember_for: Duration,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    key: Arc<Key>,
    until: Instant,
}

impl Keys {
    pub(crate) fn new(gateway: Gateway, remember_for: Duration) -> Self {
        Self { gateway, remember_for, known: Mutex::default() }
    }

    /// Returns the key if it was found valid a moment ago.
    pub(crate) fn remembered(&self, hash: &str) -> Option<Arc<Key>> {
        let known = self.known();
        known.get(hash).filter(|known| Instant::now() < known.until).map(|known| known.key.clone())
    }

    /// Asks the gateway about a key. `None` if it is unknown, expired or revoked.
    pub(crate) async fn check(&self, hash: String) -> Result<Option<Arc<Key>>, CallError> {
        let asked_at = Instant::now();
        let Some(key) = self.gateway.call(&Check { hash: hash.clone() }).await?.key else { return Ok(None) };
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

    /// Forgets a key that was revoked, so that its next use asks the gateway.
    pub(crate) fn forget(&self, key_id: &str) {
        self.known().retain(|_, known| known.key.key_id != key_id);
    }

    /// Forgets all keys, for when revocations may have been missed.
    pub(crate) fn forget_all(&self) {
        self.known().clear();
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the hash under which the gateway knows a key.
pub(crate) fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}
