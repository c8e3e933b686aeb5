//! Finds memories, with their texts as the store has them now.

use std::collections::BTreeMap;

use contract::memory::{Found, MAX_FOUND, MAX_QUERY_BYTES, Memory};
use policy::MemoryProfile;
use retrieval::Query;
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter};
use store::{
    clock,
    entity::{memory_chunk as chunk, memory_source as source},
};

use super::{Memories, TOKENIZER, book::has_expired, book::read_tags};
use crate::{ToolError, arguments::check};

const DEFAULT_FOUND: u64 = 5;

/// The arguments of a search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    pub query: &'a str,
    /// Only texts whose path begins with this.
    pub prefix: &'a str,
    /// How many pieces, 5 by default.
    pub limit: Option<u64>,
}

impl Memories {
    /// Returns the best pieces of the texts of a profile. One that was deleted or replaced in the meantime is
    /// left out.
    pub async fn find(
        &self,
        db: &DatabaseExecutor<'_>,
        profile: &MemoryProfile,
        wanted: &Wanted<'_>,
        now: i64,
    ) -> Result<Found, ToolError> {
        check::non_blank("query", wanted.query, MAX_QUERY_BYTES)?;
        let limit = wanted.limit.unwrap_or(DEFAULT_FOUND);
        if !(1..=MAX_FOUND).contains(&limit) {
            return Err(ToolError::Invalid(format!("`limit` must be 1 to {MAX_FOUND}")));
        }
        let (query, limit) = (Query::new(&TOKENIZER, wanted.query), usize::try_from(limit).unwrap_or(1));
        let hits = self.search(db, profile, query, (wanted.prefix, limit), now).await?;
        let ids = hits.iter().map(|(id, _)| id.as_str());
        // Not by profile too: SQLite would then read all chunks of the profile. An id is made of its profile.
        let mut chunks = chunk::Entity::find().filter(chunk::Column::Id.is_in(ids)).all(db).await?;
        chunks.retain(|chunk| chunk.profile == profile.as_str());
        let mut paths: Vec<&str> = chunks.iter().map(|chunk| chunk.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let sources = source::Entity::find()
            .filter(source::Column::Profile.eq(profile.as_str()))
            .filter(source::Column::Path.is_in(paths));
        let sources = sources.all(db).await?.into_iter().filter(|row| !has_expired(row, now));
        let sources: BTreeMap<String, source::Model> = sources.map(|row| (row.path.clone(), row)).collect();
        let mut chunks: BTreeMap<String, chunk::Model> =
            chunks.into_iter().map(|chunk| (chunk.id.clone(), chunk)).collect();
        let found = hits.into_iter().filter_map(|(id, score)| {
            let chunk = chunks.remove(&id)?;
            let source = sources.get(&chunk.path).filter(|source| source.version == chunk.version)?;
            Some(describe(chunk, source, score))
        });
        Ok(Found { memories: found.collect::<Result<_, _>>()? })
    }
}

fn describe(chunk: chunk::Model, source: &source::Model, score: f64) -> Result<Memory, ToolError> {
    Ok(Memory {
        id: chunk.id,
        path: chunk.path,
        profile: chunk.profile,
        first_line: chunk.first_line,
        last_line: chunk.last_line,
        text: chunk.text,
        score,
        source: source.source.clone(),
        tags: read_tags(source)?,
        digest: source.digest.clone(),
        created_at: clock::text(source.created_at),
        expires_at: source.expires_at.map(clock::text),
    })
}
