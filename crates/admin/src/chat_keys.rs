//! The API keys with which the console chats for its visitors. They are valid for minutes, and their secrets
//! are known to this process alone.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use store::clock;

use crate::Actor;

/// A key that is valid for less time is replaced.
const MIN_LEFT: Duration = Duration::from_secs(60);

/// The current key of each token that is signed in and chats.
#[derive(Debug, Default)]
pub(crate) struct ChatKeys(Mutex<HashMap<String, ChatKey>>);

#[derive(Clone)]
pub(crate) struct ChatKey {
    pub(crate) id: String,
    pub(crate) user: String,
    pub(crate) secret: String,
    /// Microseconds since 1970.
    pub(crate) expires_at: i64,
}

impl std::fmt::Debug for ChatKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatKey").field("user", &self.user).finish_non_exhaustive()
    }
}

impl ChatKeys {
    /// Returns the actor's key for `user`, if it is valid for a while, unless it was revoked.
    pub(crate) fn unexpired(&self, actor: &Actor, user: &str, now: i64) -> Option<ChatKey> {
        let until = now.saturating_add(micros(MIN_LEFT));
        let known = self.known();
        known.get(&actor.token_id).filter(|key| key.user == user && key.expires_at > until).cloned()
    }

    pub(crate) fn put(&self, actor: &Actor, key: ChatKey) {
        let (mut known, now) = (self.known(), clock::now());
        known.retain(|_, key| key.expires_at > now);
        known.insert(actor.token_id.clone(), key);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, ChatKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
