//! Memories: search, list, read and change, under the same rules as for tools.

use api::{
    ChangedMemories, FoundMemory, MemoryAddress, MemoryChanges, MemoryContent, MemoryFilter,
    MemoryProfileSize, MemorySearch, MemorySource, PutMemory,
};
use contract::memory::{Memory, Source};
use control::{MemoryAuthor, MemoryBook, NewMemory, PreparedMemory, ToolError, Wanted};
use futures_util::{StreamExt, TryStreamExt, stream};
use policy::MemoryProfile;
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;
use store::{clock, entity::memory_profile};

use super::convert_tool_error;
use crate::{Actor, Admin, Error};

const FIELD: &str = "memory";
const MAX_LISTED: usize = 10_000;
/// Texts that are read at the same time, before the transaction begins.
const PREPARED_AT_ONCE: usize = 4;
/// Texts and paths of one request.
const MAX_CHANGES: usize = 1000;

fn convert(error: ToolError) -> Error {
    convert_tool_error(FIELD, error)
}

fn parse(profile: &str) -> Result<MemoryProfile, Error> {
    profile.parse().map_err(|error: policy::InvalidProfile| Error::invalid("profile", error.to_string()))
}

impl Admin {
    /// Makes all of the changes, or none.
    pub(crate) async fn change_memories(
        &self,
        actor: &Actor,
        profile: &str,
        changes: MemoryChanges,
    ) -> Result<ChangedMemories, Error> {
        const WHAT: &str = "admin.memory.change";
        self.require_admin(actor, WHAT).await?;
        let profile = parse(profile)?;
        if changes.put.len() + changes.delete.len() > MAX_CHANGES {
            return Err(Error::invalid(FIELD, format!("at most {MAX_CHANGES} changes are made at once")));
        }
        let paths = || changes.put.iter().map(|new| &new.path).chain(&changes.delete);
        let folder = changes.folder.clone();
        if let Some(folder) = &folder
            && !paths().all(|path| path.starts_with(&folder.prefix))
        {
            return Err(Error::invalid(FIELD, format!("all paths must begin with `{}`", folder.prefix)));
        }
        let author =
            folder.as_ref().map_or(MemoryAuthor::Administrator, |it| MemoryAuthor::Folder(&it.sources));
        let put: Vec<&str> = changes.put.iter().map(|new| new.path.as_str()).collect();
        let about = json!({ "profile": profile.as_str(), "put": put, "delete": changes.delete });
        let now = clock::now();
        let prepare = async |new: PutMemory| {
            let path = new.path.clone();
            let prepared = async { PreparedMemory::new(&profile, to_new(new, now)?).await };
            prepared.await.map_err(|error| convert(name(&path, error)))
        };
        let prepared = stream::iter(changes.put).map(prepare).buffered(PREPARED_AT_ONCE);
        let prepared: Vec<PreparedMemory> = prepared.try_collect().await?;
        let open = self.begin(actor, WHAT, &about).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let book = MemoryBook::new(&db, &profile, now);
        let mut done = ChangedMemories::default();
        for path in &changes.delete {
            match book.delete(path, author).await {
                Ok(()) => done.deleted += 1,
                Err(ToolError::NotFound { .. }) => {}
                Err(error) => return Err(convert(error)),
            }
        }
        for new in prepared {
            let kept = book.put_one_of_many(new, author).await.map_err(convert)?;
            *(if kept.changed { &mut done.changed } else { &mut done.unchanged }) += 1;
        }
        if done.changed > 0 {
            book.check_size(&self.memories.settings).await.map_err(convert)?;
        }
        if let Some(folder) = &folder {
            book.check_folder(&folder.prefix, &folder.sources).await.map_err(convert)?;
        }
        self.commit(open).await?;
        Ok(done)
    }

    /// Lists the profiles that hold something, by name.
    pub(crate) async fn list_memory_profiles(&self, actor: &Actor) -> Result<Vec<MemoryProfileSize>, Error> {
        actor.ensure_admin()?;
        let rows = memory_profile::Entity::find()
            .filter(memory_profile::Column::Chunks.gt(0))
            .order_by_asc(memory_profile::Column::Profile)
            .all(self.store.read())
            .await?;
        let size = |row: memory_profile::Model| MemoryProfileSize {
            profile: row.profile,
            chunks: row.chunks,
            bytes: row.bytes,
        };
        Ok(rows.into_iter().map(size).collect())
    }

    /// Lists texts by path.
    pub(crate) async fn list_memories(
        &self,
        actor: &Actor,
        profile: &str,
        filter: &MemoryFilter,
    ) -> Result<Vec<MemorySource>, Error> {
        actor.ensure_admin()?;
        let (profile, db) = (parse(profile)?, DatabaseExecutor::from(self.store.read()));
        let book = MemoryBook::new(&db, &profile, clock::now());
        let sources = book.sources(filter.prefix.as_deref().unwrap_or_default()).await.map_err(convert)?;
        let after = |source: &Source| filter.after.as_ref().is_none_or(|after| source.path > *after);
        let limit = filter.limit.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        Ok(sources.into_iter().filter(after).take(limit).map(body).collect())
    }

    /// Returns a text, or a piece of it.
    pub(crate) async fn get_memory(
        &self,
        actor: &Actor,
        profile: &str,
        at: &MemoryAddress,
    ) -> Result<MemoryContent, Error> {
        actor.ensure_admin()?;
        let (profile, db) = (parse(profile)?, DatabaseExecutor::from(self.store.read()));
        let book = MemoryBook::new(&db, &profile, clock::now());
        let content = book.get(&at.path, at.cursor.as_deref()).await.map_err(convert)?;
        Ok(MemoryContent {
            source: body(content.source),
            first_line: content.first_line,
            last_line: content.last_line,
            text: content.text,
            next_cursor: content.next_cursor,
        })
    }

    /// Returns the pieces of texts that match a query, best first.
    pub(crate) async fn search_memories(
        &self,
        actor: &Actor,
        profile: &str,
        wanted: &MemorySearch,
    ) -> Result<Vec<FoundMemory>, Error> {
        actor.ensure_admin()?;
        let (profile, db) = (parse(profile)?, DatabaseExecutor::from(self.store.read()));
        let MemorySearch { query, prefix, limit } = wanted;
        let wanted = Wanted { query, prefix: prefix.as_deref().unwrap_or_default(), limit: *limit };
        let found = self.memories.find(&db, &profile, &wanted, clock::now()).await;
        Ok(found.map_err(convert)?.memories.into_iter().map(found_body).collect())
    }
}

/// Says which of several texts is refused.
fn name(path: &str, error: ToolError) -> ToolError {
    match error {
        ToolError::Store(error) => ToolError::Store(error),
        error => ToolError::Invalid(format!("{path}: {error}")),
    }
}

fn to_new(new: PutMemory, now: i64) -> Result<NewMemory, ToolError> {
    Ok(NewMemory {
        path: new.path,
        text: new.text,
        source: new.source,
        tags: new.tags,
        expires_at: NewMemory::expiry(new.expires_in_seconds, now)?,
    })
}

fn body(source: Source) -> MemorySource {
    MemorySource {
        path: source.path,
        profile: source.profile,
        source: source.source,
        tags: source.tags,
        digest: source.digest,
        bytes: source.bytes,
        chunks: source.chunks,
        created_at: source.created_at,
        updated_at: source.updated_at,
        expires_at: source.expires_at,
    }
}

fn found_body(memory: Memory) -> FoundMemory {
    FoundMemory {
        id: memory.id,
        path: memory.path,
        first_line: memory.first_line,
        last_line: memory.last_line,
        text: memory.text,
        score: memory.score,
        source: memory.source,
        tags: memory.tags,
        digest: memory.digest,
        created_at: memory.created_at,
        expires_at: memory.expires_at,
    }
}
