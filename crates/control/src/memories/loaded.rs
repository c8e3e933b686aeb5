//! The index of one profile, and how it follows the store.

use std::collections::{BTreeMap, BTreeSet};

use policy::MemoryProfile;
use retrieval::{Features, Index, Query};
use sea_orm::{
    ColumnTrait, DatabaseExecutor, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect,
};
use store::entity::{memory_chunk as chunk, memory_profile as profile_row, memory_source as source};
use tracing::warn;

use crate::ToolError;

/// What is held of a chunk besides the index, at most.
pub(super) const BYTES_OF_CHUNK: usize = 160;
const BYTES_OF_SOURCE: usize = 512;
/// Sources that are looked at, and chunks that are loaded, at a time.
const SOURCES_AT_ONCE: u64 = 1_000;
const CHUNKS_AT_ONCE: i64 = 2_000;

/// The index of a profile as of a version.
#[derive(Debug, Default)]
pub(super) struct LoadedProfile {
    version: i64,
    deleted_version: i64,
    index: Index,
    sources: BTreeMap<String, LoadedSource>,
    /// When sources expire, by time.
    expiring: BTreeSet<(i64, String)>,
    held_bytes: usize,
}

#[derive(Debug, Default)]
struct LoadedSource {
    ids: Vec<String>,
    expires_at: Option<i64>,
}

#[derive(Debug, FromQueryResult)]
struct ChangedSource {
    path: String,
    version: i64,
    chunks: i64,
    expires_at: Option<i64>,
}

#[derive(Debug, FromQueryResult)]
struct ChangedChunk {
    id: String,
    path: String,
    features: Vec<u8>,
}

impl LoadedProfile {
    pub(super) fn version(&self) -> i64 {
        self.version
    }

    /// Returns whether a search at a time would count what has expired.
    pub(super) fn has_expired(&self, now: i64) -> bool {
        self.expiring.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Returns how many bytes it takes at most.
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes() + self.held_bytes
    }

    pub(super) fn search(&self, query: &Query, limit: usize) -> Vec<(String, f64)> {
        let hits = self.index.search(query, limit);
        hits.into_iter().map(|hit| (hit.id.to_owned(), hit.score)).collect()
    }

    /// Removes what has expired, and loads what changed since the last time. The version is that of the
    /// store before anything was read: what changes meanwhile is loaded again the next time.
    pub(super) async fn refresh(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        now: i64,
    ) -> Result<(), ToolError> {
        let row = profile_row::Entity::find_by_id(profile.as_str()).one(db).await?;
        if let Some(row) = row.filter(|row| row.version != self.version) {
            if row.version < self.version {
                // An older store was restored.
                *self = Self::default();
            }
            self.load_changes(db, profile).await?;
            if row.deleted_version > self.deleted_version {
                self.drop_deleted(db, profile).await?;
            }
            (self.version, self.deleted_version) = (row.version, row.deleted_version);
        }
        while let Some((_, path)) = self.expiring.first().filter(|(at, _)| *at <= now).cloned() {
            self.remove(&path);
        }
        Ok(())
    }

    /// Each change of a source has a version of its own, so that a version is where a page begins.
    async fn load_changes(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
    ) -> Result<(), ToolError> {
        let mut known = self.version;
        loop {
            let changed = source::Entity::find()
                .select_only()
                .columns([source::Column::Path, source::Column::Version, source::Column::Chunks])
                .column(source::Column::ExpiresAt)
                .filter(source::Column::Profile.eq(profile.as_str()))
                .filter(source::Column::Version.gt(known))
                .order_by_asc(source::Column::Version)
                .limit(SOURCES_AT_ONCE)
                .into_model::<ChangedSource>()
                .all(db)
                .await?;
            if changed.is_empty() {
                return Ok(());
            }
            let mut rest = changed.as_slice();
            while let Some((first, _)) = rest.split_first() {
                let mut chunks = 0;
                let fits = rest.iter().take_while(|source| {
                    chunks += source.chunks;
                    chunks <= CHUNKS_AT_ONCE
                });
                let (page, others) = rest.split_at_checked(fits.count().max(1)).unwrap_or((rest, &[]));
                rest = others;
                known = page.last().unwrap_or(first).version;
                self.load_page(db, profile, page, first.version..=known).await?;
            }
        }
    }

    async fn load_page(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        sources: &[ChangedSource],
        versions: std::ops::RangeInclusive<i64>,
    ) -> Result<(), ToolError> {
        for ChangedSource { path, expires_at, .. } in sources {
            self.remove(path);
            self.expiring.extend(expires_at.map(|at| (at, path.clone())));
            self.held_bytes += BYTES_OF_SOURCE + 4 * path.len();
            let source = LoadedSource { ids: Vec::new(), expires_at: *expires_at };
            self.sources.insert(path.clone(), source);
        }
        let chunks = chunk::Entity::find()
            .select_only()
            .columns([chunk::Column::Id, chunk::Column::Path, chunk::Column::Features])
            .filter(chunk::Column::Profile.eq(profile.as_str()))
            .filter(chunk::Column::Version.between(*versions.start(), *versions.end()))
            .into_model::<ChangedChunk>()
            .all(db)
            .await?;
        for ChangedChunk { id, path, features } in chunks {
            let features = Features::from_bytes(&features).map_err(|error| {
                warn!(%error, path, "Memory not readable.");
                ToolError::Store(DbErr::Type(format!("the memory {path}: {error}")))
            })?;
            // A source that changed since it was listed comes with its later version.
            if let Some(source) = self.sources.get_mut(&path) {
                self.held_bytes += BYTES_OF_CHUNK;
                self.index.insert(&id, features);
                source.ids.push(id);
            }
        }
        Ok(())
    }

    async fn drop_deleted(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
    ) -> Result<(), ToolError> {
        let paths = source::Entity::find().select_only().column(source::Column::Path);
        let paths = paths.filter(source::Column::Profile.eq(profile.as_str()));
        let kept: BTreeSet<String> = paths.into_tuple().all(db).await?.into_iter().collect();
        let gone: Vec<String> = self.sources.keys().filter(|path| !kept.contains(*path)).cloned().collect();
        gone.iter().for_each(|path| self.remove(path));
        Ok(())
    }

    fn remove(&mut self, path: &str) {
        let Some(source) = self.sources.remove(path) else { return };
        self.held_bytes -= BYTES_OF_SOURCE + 4 * path.len() + BYTES_OF_CHUNK * source.ids.len();
        if let Some(at) = source.expires_at {
            self.expiring.remove(&(at, path.to_owned()));
        }
        for id in source.ids {
            self.index.remove(&id);
        }
    }
}
