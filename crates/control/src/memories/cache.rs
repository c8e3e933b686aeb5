//! The indexes of this process, one for each profile that was searched lately.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use policy::MemoryProfile;
use retrieval::Query;
use sea_orm::{DatabaseExecutor, EntityTrait};
use store::entity::memory_profile as profile_row;
use tokio::sync::RwLock;

use super::{MemorySettings, loaded::LoadedProfile};
use crate::ToolError;

/// Searches memories. An index has the texts of one profile, and each profile has a lock of its own.
#[derive(Debug, Default)]
pub struct Memories {
    pub settings: MemorySettings,
    cached: Mutex<Cached>,
}

#[derive(Debug, Default)]
struct Cached {
    profiles: BTreeMap<MemoryProfile, CachedProfile>,
    /// Counts uses, so that the profile can be found that was not used for the longest time.
    uses: u64,
}

#[derive(Debug, Default)]
struct CachedProfile {
    loaded: Arc<RwLock<LoadedProfile>>,
    last_use: u64,
    bytes: u64,
}

impl Memories {
    pub fn new(settings: MemorySettings) -> Self {
        Self { settings, cached: Mutex::default() }
    }

    /// Returns the ids of the best chunks for a query, with their scores, best first: of texts whose path
    /// begins with a prefix, and as many as wanted. Searches an index that
    /// is as current as the store, on a thread for such work.
    pub(super) async fn search(
        &self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        query: Query,
        wanted: (&str, usize),
        now: i64,
    ) -> Result<Vec<(String, f64)>, ToolError> {
        let Some(row) = profile_row::Entity::find_by_id(profile.as_str()).one(db).await? else {
            return Ok(Vec::new());
        };
        let loaded = self.take(profile, u64::try_from(row.index_bytes).unwrap_or_default());
        let mut current = Arc::clone(&loaded).read_owned().await;
        if current.version() != row.version || current.has_expired(now) {
            drop(current);
            let mut stale = loaded.write_owned().await;
            let refreshed = stale.refresh(db, profile, now).await;
            self.settle(profile, stale.bytes() as u64);
            refreshed?;
            current = stale.downgrade();
        }
        let (prefix, limit) = (wanted.0.to_owned(), wanted.1);
        let found = tokio::task::spawn_blocking(move || current.search(&query, &prefix, limit)).await;
        found.map_err(|error| ToolError::Invalid(format!("the search failed: {error}")))
    }

    /// Returns the index of a profile. A new one may take up to `estimate` bytes, for which others make room
    /// before it is loaded.
    fn take(&self, profile: &MemoryProfile, estimate: u64) -> Arc<RwLock<LoadedProfile>> {
        let mut cached = self.lock();
        cached.uses += 1;
        let last_use = cached.uses;
        let known = cached
            .profiles
            .entry(profile.clone())
            .or_insert_with(|| CachedProfile { bytes: estimate, ..CachedProfile::default() });
        known.last_use = last_use;
        let loaded = Arc::clone(&known.loaded);
        cached.make_room(self.settings.index_bytes, profile);
        loaded
    }

    /// Records what an index really takes.
    fn settle(&self, profile: &MemoryProfile, bytes: u64) {
        let mut cached = self.lock();
        if let Some(known) = cached.profiles.get_mut(profile) {
            known.bytes = bytes;
        }
        cached.make_room(self.settings.index_bytes, profile);
    }

    /// Returns how many profiles have an index, and how many bytes these take at most.
    pub fn usage(&self) -> (usize, u64) {
        let cached = self.lock();
        (cached.profiles.len(), cached.bytes())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cached> {
        // No code panics while it holds the lock.
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cached {
    fn bytes(&self) -> u64 {
        self.profiles.values().map(|profile| profile.bytes).sum()
    }

    /// Drops the indexes that were not used for the longest time, but not that of `kept`. A search that still
    /// uses one ends first.
    fn make_room(&mut self, limit: u64, kept: &MemoryProfile) {
        while self.bytes() > limit {
            let others = self.profiles.iter().filter(|(profile, _)| *profile != kept);
            let Some(oldest) = others.min_by_key(|(_, it)| it.last_use).map(|(profile, _)| profile.clone())
            else {
                return;
            };
            self.profiles.remove(&oldest);
        }
    }
}
