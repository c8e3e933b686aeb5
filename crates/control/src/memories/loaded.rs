//! The index of one profile, and how it follows the store.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Bound,
};

use policy::MemoryProfile;
use retrieval::{Features, Hit, Index, Query};
use sea_orm::{
    ColumnTrait, DatabaseExecutor, DbErr, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect,
};
use store::entity::{memory_chunk as chunk, memory_profile as profile_row, memory_source as source};
use tracing::warn;

use super::TOKENIZER;
use crate::ToolError;

/// Upper bound on the memory of a chunk outside the index.
pub(super) const BYTES_OF_CHUNK: usize = 160;
const BYTES_OF_SOURCE: usize = 512;
/// Number of sources checked, and of chunks loaded, at a time.
const SOURCES_AT_ONCE: u64 = 1_000;
const CHUNKS_AT_ONCE: i64 = 2_000;
/// Both databases limit the number of values.
const IDS_AT_ONCE: usize = 200;

/// The index of a profile as of a version.
#[derive(Debug, Default)]
pub(super) struct LoadedProfile {
    version: i64,
    deleted_version: i64,
    index: Index,
    sources: BTreeMap<String, LoadedSource>,
    /// When sources expire, by time.
    expiring: BTreeSet<(i64, String)>,
    /// Sources that have expired and may still be in the store, with the number of their chunks.
    expired: BTreeMap<String, usize>,
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

    /// Returns the best chunks of the texts whose path begins with a prefix.
    pub(super) fn search(&self, query: &Query, prefix: &str, limit: usize) -> Vec<(String, f64)> {
        if prefix.is_empty() {
            return to_owned(self.index.search(query, limit));
        }
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let below = self.sources.range::<str, _>(from).take_while(|(path, _)| path.starts_with(prefix));
        let ids: HashSet<&str> = below.flat_map(|(_, source)| &source.ids).map(String::as_str).collect();
        to_owned(self.index.search_among(query, limit, |id| ids.contains(id)))
    }

    /// Removes what has expired, and loads what changed since the last time. The version is that of the
    /// store before anything was read: what changes meanwhile is loaded again the next time.
    pub(super) async fn refresh(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        now: i64,
    ) -> Result<(), ToolError> {
        let row = find_row(db, profile).await?;
        if let Some(row) = row.filter(|row| row.version != self.version) {
            if row.version < self.version {
                // An older store was restored.
                *self = Self::default();
            }
            self.catch_up(db, profile, &row).await?;
            let is_settled = find_row(db, profile).await?.is_some_and(|later| later.version == row.version);
            if is_settled && self.chunks() != row.chunks {
                // An older store was restored, and changed since.
                *self = Self::default();
                self.catch_up(db, profile, &row).await?;
            }
        }
        while let Some((_, path)) = self.expiring.first().filter(|(at, _)| *at <= now).cloned() {
            let chunks = self.sources.get(&path).map_or(0, |source| source.ids.len());
            self.remove(&path);
            self.expired.insert(path, chunks);
        }
        Ok(())
    }

    async fn catch_up(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        row: &profile_row::Model,
    ) -> Result<(), ToolError> {
        self.load_changes(db, profile).await?;
        if row.deleted_version > self.deleted_version {
            self.drop_deleted(db, profile).await?;
        }
        (self.version, self.deleted_version) = (row.version, row.deleted_version);
        Ok(())
    }

    /// Returns how many chunks the store has, as far as is known.
    fn chunks(&self) -> i64 {
        i64::try_from(self.index.len() + self.expired.values().sum::<usize>()).unwrap_or(i64::MAX)
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
            let mut rest = changed.into_iter().peekable();
            while let Some(first) = rest.next() {
                let (from, mut chunks, mut page) = (first.version, first.chunks, vec![first]);
                while let Some(next) = rest.next_if(|next| chunks + next.chunks <= CHUNKS_AT_ONCE) {
                    chunks += next.chunks;
                    page.push(next);
                }
                known = page.last().map_or(from, |last| last.version);
                self.load_page(db, profile, page, from..=known).await?;
            }
        }
    }

    async fn load_page(
        &mut self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        sources: Vec<ChangedSource>,
        versions: std::ops::RangeInclusive<i64>,
    ) -> Result<(), ToolError> {
        let chunks = chunk::Entity::find()
            .select_only()
            .columns([chunk::Column::Id, chunk::Column::Path, chunk::Column::Features])
            .filter(chunk::Column::Profile.eq(profile.as_str()))
            .filter(chunk::Column::Version.between(*versions.start(), *versions.end()))
            .into_model::<ChangedChunk>()
            .all(db)
            .await?;
        let (mut readable, mut unreadable, mut why) = (Vec::new(), BTreeMap::new(), None);
        for ChangedChunk { id, path, features } in chunks {
            match Features::from_bytes(&features) {
                Ok(features) => readable.push((id, path, features)),
                Err(error) => {
                    why = Some(error);
                    unreadable.insert(id, path);
                }
            }
        }
        if let Some(error) = why {
            let chunks = unreadable.len();
            warn!(%error, %profile, chunks, "Index entries unreadable; indexing their texts again.");
        }
        let texts = read_texts(db, unreadable).await?;
        // If this is given up while the thread works, an empty index is left, which the next search loads.
        let mut taken = std::mem::take(self);
        let insert = move || {
            taken.insert_page(sources);
            let read = texts.into_iter().map(|(id, path, text)| (id, path, Features::of(&TOKENIZER, &text)));
            readable
                .into_iter()
                .chain(read)
                .for_each(|(id, path, features)| taken.insert(id, &path, features));
            taken
        };
        let inserted = tokio::task::spawn_blocking(insert).await;
        *self = inserted.map_err(|error| ToolError::Invalid(format!("the index failed: {error}")))?;
        Ok(())
    }

    fn insert_page(&mut self, sources: Vec<ChangedSource>) {
        for ChangedSource { path, expires_at, .. } in sources {
            self.remove(&path);
            self.expired.remove(&path);
            self.expiring.extend(expires_at.map(|at| (at, path.clone())));
            self.held_bytes += BYTES_OF_SOURCE + 4 * path.len();
            self.sources.insert(path, LoadedSource { ids: Vec::new(), expires_at });
        }
    }

    /// A chunk whose source changed since it was listed comes with the later version of it.
    fn insert(&mut self, id: String, path: &str, features: Features) {
        let Some(source) = self.sources.get_mut(path) else { return };
        self.held_bytes += BYTES_OF_CHUNK;
        self.index.insert(&id, features);
        source.ids.push(id);
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
        self.expired.retain(|path, _| kept.contains(path));
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

/// Returns the texts of chunks, each with its id and path: other releases may have read them otherwise.
async fn read_texts(
    db: &DatabaseExecutor<'_>,
    mut paths: BTreeMap<String, String>,
) -> Result<Vec<(String, String, String)>, DbErr> {
    let ids: Vec<String> = paths.keys().cloned().collect();
    let mut texts = Vec::new();
    for ids in ids.chunks(IDS_AT_ONCE) {
        let rows = chunk::Entity::find().select_only().columns([chunk::Column::Id, chunk::Column::Text]);
        let rows = rows.filter(chunk::Column::Id.is_in(ids)).into_tuple::<(String, String)>();
        let rows = rows.all(db).await?.into_iter();
        texts.extend(rows.filter_map(|(id, text)| Some((paths.remove_entry(&id)?, text))));
    }
    Ok(texts.into_iter().map(|((id, path), text)| (id, path, text)).collect())
}

fn to_owned(hits: Vec<Hit<'_>>) -> Vec<(String, f64)> {
    hits.into_iter().map(|hit| (hit.id.to_owned(), hit.score)).collect()
}

async fn find_row(
    db: &DatabaseExecutor<'_>,
    profile: &MemoryProfile,
) -> Result<Option<profile_row::Model>, DbErr> {
    profile_row::Entity::find_by_id(profile.as_str()).one(db).await
}
