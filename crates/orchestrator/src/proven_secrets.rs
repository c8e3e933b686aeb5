//! Caches secrets that were valid when last checked. Their holders are exempt from the rate limit of their
//! address, which they share with clients that have no valid secret. The cache never authenticates a request.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

/// Maximum number of secrets remembered at the same time.
const MAX_REMEMBERED: usize = 10_000;

/// The hashes of secrets that were valid, each with the time of its last check. One is removed as soon as a
/// check finds that it is not valid any more.
#[derive(Debug, Default)]
pub(crate) struct ProvenSecrets(Mutex<HashMap<String, Instant>>);

impl ProvenSecrets {
    pub(crate) fn contains(&self, hash: &str) -> bool {
        self.lock().contains_key(hash)
    }

    /// Remembers a secret that was found valid, in the place of the one that was not checked for longest if
    /// there are too many.
    pub(crate) fn insert(&self, hash: &str) {
        let mut proven = self.lock();
        if proven.len() >= MAX_REMEMBERED && !proven.contains_key(hash) {
            let oldest = proven.iter().min_by_key(|(_, checked_at)| **checked_at);
            if let Some(oldest) = oldest.map(|(hash, _)| hash.clone()) {
                proven.remove(&oldest);
            }
        }
        proven.insert(hash.to_owned(), Instant::now());
    }

    /// Forgets a secret that was found not to be valid.
    pub(crate) fn remove(&self, hash: &str) {
        self.lock().remove(hash);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_secret_that_was_not_checked_for_longest_makes_room() {
        let (proven, now) = (ProvenSecrets::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        proven.lock().extend((0..MAX_REMEMBERED).map(|number| (number.to_string(), later)));
        proven.lock().insert("1".to_owned(), now);
        proven.insert("2");
        assert!(proven.contains("1"), "one that is known needs no room");
        proven.insert("new");
        assert!(proven.contains("new") && proven.contains("2") && !proven.contains("1"));
        assert_eq!(proven.lock().len(), MAX_REMEMBERED);
        proven.remove("new");
        assert!(!proven.contains("new"));
    }
}
