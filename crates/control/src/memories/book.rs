//! Reads and changes the texts of a memory profile. Tools and administrators go through [`MemoryBook`] alone.

use contract::memory::{Content, Kept, Source};
use policy::MemoryProfile;
use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, DatabaseExecutor, EntityTrait, ExprTrait, QueryFilter,
    QueryOrder, QuerySelect, sea_query::Expr,
};
use store::{
    clock,
    entity::{memory_chunk as chunk, memory_profile as profile_row, memory_source as source},
};

use super::{
    MemoryAuthor, MemorySettings, PreparedMemory,
    author::{begins_with, is_ingested, is_of, of_another},
};
use crate::{
    ToolError,
    arguments::{check, path},
};

/// Rows of one statement. Both databases limit the number of values.
const ROWS_AT_ONCE: usize = 200;
/// A piece of a text that is read.
const CONTENT_BYTES: usize = 16 * 1024;
const MAX_CHUNKS_READ: u64 = 256;
/// How often a text is read that is replaced at the same time.
const READS: usize = 5;

/// The memories of one profile, within a transaction for whatever changes something.
#[derive(Debug)]
pub struct MemoryBook<'w> {
    db: &'w DatabaseExecutor<'w>,
    profile: &'w MemoryProfile,
    /// Microseconds since 1970.
    now: i64,
}

/// The difference that a change makes to the totals of a profile.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    chunks: i64,
    bytes: i64,
    index_bytes: i64,
}

impl<'w> MemoryBook<'w> {
    pub fn new(db: &'w DatabaseExecutor<'w>, profile: &'w MemoryProfile, now: i64) -> Self {
        Self { db, profile, now }
    }

    /// Keeps a text: all of its chunks, in place of those that were under its path.
    pub async fn put(
        &self,
        settings: &MemorySettings,
        prepared: PreparedMemory,
        author: MemoryAuthor<'_>,
    ) -> Result<Kept, ToolError> {
        self.replace(Some(settings), prepared, author).await
    }

    /// Keeps one of several texts. [`check_size`](Self::check_size) follows when all are kept: whether they
    /// fit does not depend on their order.
    pub async fn put_one_of_many(
        &self,
        prepared: PreparedMemory,
        author: MemoryAuthor<'_>,
    ) -> Result<Kept, ToolError> {
        self.replace(None, prepared, author).await
    }

    /// Fails if the profile has more than it may.
    pub async fn check_size(&self, settings: &MemorySettings) -> Result<(), ToolError> {
        let totals = profile_row::Entity::find_by_id(self.profile.as_str()).one(self.db).await?;
        totals.map_or(Ok(()), |totals| Size::of_profile(&totals).check(settings, self.profile))
    }

    /// Keeps a text, if the profile may then have as much as it would.
    async fn replace(
        &self,
        settings: Option<&MemorySettings>,
        prepared: PreparedMemory,
        author: MemoryAuthor<'_>,
    ) -> Result<Kept, ToolError> {
        if prepared.profile != *self.profile {
            // The ids of its chunks are made of the profile.
            let why = format!("the text was prepared for the memory profile `{}`", prepared.profile);
            return Err(ToolError::Invalid(why));
        }
        let tags = check::to_json("tags", &prepared.new.tags.clone().into(), usize::MAX)?;
        let same = |before: &source::Model| is_same(before, &prepared, &tags);
        if let Some(before) = self.find_for(&prepared.new.path, author).await?.filter(same) {
            return Ok(Kept { source: describe(before)?, changed: false });
        }
        let totals = self.lock().await?;
        // Another gateway may have written before the lock was taken, also the same text.
        let before = self.find_for(&prepared.new.path, author).await?;
        if let Some(before) = before.clone().filter(same) {
            return Ok(Kept { source: describe(before)?, changed: false });
        }
        let row = source::Model {
            profile: self.profile.to_string(),
            path: prepared.new.path,
            digest: prepared.digest,
            source: prepared.new.source,
            tags,
            version: totals.version,
            chunks: to_signed(prepared.chunks.len() as u64),
            bytes: to_signed(prepared.new.text.len() as u64),
            index_bytes: to_signed(prepared.index_bytes),
            created_at: before.as_ref().map_or(self.now, |before| before.created_at),
            updated_at: self.now,
            expires_at: prepared.new.expires_at,
        };
        let (new, old) = (Size::of(&row), before.as_ref().map(Size::of).unwrap_or_default());
        let size = Size::of_profile(&totals).plus(new).minus(old);
        settings.map_or(Ok(()), |settings| size.check(settings, self.profile))?;
        if let Some(before) = &before {
            self.delete_rows(&before.path, author.may_replace()).await?;
        }
        let insert = source::Entity::insert(source::ActiveModel::from(row.clone()));
        insert.exec_without_returning(self.db).await?;
        let mut chunks = prepared.chunks.into_iter().enumerate().map(|(number, piece)| {
            chunk::ActiveModel::from(chunk::Model {
                id: piece.id,
                profile: row.profile.clone(),
                path: row.path.clone(),
                number: to_signed(number as u64),
                version: row.version,
                first_line: to_signed(piece.first_line as u64),
                last_line: to_signed(piece.last_line as u64),
                text: piece.text,
                features: piece.features,
            })
        });
        loop {
            let rows: Vec<chunk::ActiveModel> = chunks.by_ref().take(ROWS_AT_ONCE).collect();
            if rows.is_empty() {
                break;
            }
            chunk::Entity::insert_many(rows).exec_without_returning(self.db).await?;
        }
        self.set_size(size, None).await?;
        Ok(Kept { source: describe(row)?, changed: true })
    }

    /// Deletes a text with all of its chunks.
    pub async fn delete(&self, path: &str, author: MemoryAuthor<'_>) -> Result<(), ToolError> {
        path::check(path)?;
        let Some(row) = self.find(path).await? else { return Err(not_found(path)) };
        author.check(&row)?;
        self.delete_if(path, author).await
    }

    /// Deletes a text if it has expired. One that was replaced since it was found to be expired is kept.
    pub async fn delete_expired(&self, path: &str) -> Result<(), ToolError> {
        match self.delete_if(path, MemoryAuthor::Expiry(self.now)).await {
            Err(ToolError::NotFound { .. }) => Ok(()),
            done => done,
        }
    }

    /// Deletes a text that its author may delete; to others, it is not there.
    async fn delete_if(&self, path: &str, author: MemoryAuthor<'_>) -> Result<(), ToolError> {
        let totals = self.lock().await?;
        // Another gateway may have written before the lock was taken.
        let Some(row) = self.find(path).await? else { return Err(not_found(path)) };
        author.check(&row)?;
        self.delete_rows(path, author.may_delete()).await?;
        let size = Size::of_profile(&totals).minus(Size::of(&row));
        self.set_size(size, Some(totals.version)).await
    }

    /// Fails if a text below a prefix was ingested from another folder than that of these sources. Called
    /// after the changes, it counts until the transaction ends.
    pub async fn check_folder(&self, prefix: &str, sources: &[String]) -> Result<(), ToolError> {
        let of_another_one = source::Entity::find()
            .filter(source::Column::Profile.eq(self.profile.as_str()))
            .filter(begins_with(source::Column::Path, prefix))
            .filter(is_ingested())
            .filter(is_of(sources).not())
            .one(self.db)
            .await?;
        of_another_one.map_or(Ok(()), |row| Err(of_another(&row.path)))
    }

    /// Returns a text, or the piece of it that begins at a cursor.
    pub async fn get(&self, path: &str, cursor: Option<&str>) -> Result<Content, ToolError> {
        path::check(path)?;
        let cursor = cursor.map(Cursor::parse).transpose()?;
        for _ in 0..READS {
            let row = self.find(path).await?.filter(|row| !has_expired(row, self.now));
            let row = row.ok_or_else(|| not_found(path))?;
            let from = match cursor {
                Some(cursor) if cursor.version != row.version => return Err(replaced(path)),
                Some(cursor) if cursor.number >= row.chunks => return Err(Cursor::invalid()),
                Some(cursor) => cursor.number,
                None => 0,
            };
            let chunks = chunk::Entity::find()
                .filter(self.of_path(path))
                .filter(chunk::Column::Version.eq(row.version))
                .filter(chunk::Column::Number.gte(from))
                .order_by_asc(chunk::Column::Number)
                .limit(MAX_CHUNKS_READ)
                .all(self.db)
                .await?;
            // A text that was replaced since its row was read has chunks of another version.
            if !chunks.is_empty() {
                return content(row, chunks);
            }
        }
        Err(replaced(path))
    }

    /// Returns all texts whose path begins with a prefix, by path. They are ordered here, since the order of
    /// PostgreSQL depends on its locale.
    pub async fn sources(&self, prefix: &str) -> Result<Vec<Source>, ToolError> {
        let rows = source::Entity::find().filter(source::Column::Profile.eq(self.profile.as_str()));
        let mut rows = rows.all(self.db).await?;
        rows.retain(|row| row.path.starts_with(prefix) && !has_expired(row, self.now));
        rows.sort_by(|left, right| left.path.cmp(&right.path));
        rows.into_iter().map(describe).collect()
    }

    pub(super) async fn find(&self, path: &str) -> Result<Option<source::Model>, ToolError> {
        let key = (self.profile.to_string(), path.to_owned());
        Ok(source::Entity::find_by_id(key).one(self.db).await?)
    }

    /// Returns the text under a path. Fails if its author may not replace it.
    async fn find_for(
        &self,
        path: &str,
        author: MemoryAuthor<'_>,
    ) -> Result<Option<source::Model>, ToolError> {
        let before = self.find(path).await?;
        before.as_ref().map_or(Ok(()), |before| author.check(before))?;
        Ok(before)
    }

    /// Raises the version of the profile, which keeps other writers of it out until the transaction ends. It
    /// is at least the time, so that a store that was restored does not give a version twice.
    async fn lock(&self) -> Result<profile_row::Model, ToolError> {
        let version = || Expr::col(profile_row::Column::Version);
        let raised = Expr::case(version().lt(self.now), self.now).finally(version().add(1));
        let raise = profile_row::Entity::update_many()
            .col_expr(profile_row::Column::Version, raised.into())
            .filter(profile_row::Column::Profile.eq(self.profile.as_str()));
        if raise.clone().exec(self.db).await?.rows_affected == 0 {
            let empty = profile_row::ActiveModel {
                profile: Set(self.profile.to_string()),
                version: Set(0),
                deleted_version: Set(0),
                chunks: Set(0),
                bytes: Set(0),
                index_bytes: Set(0),
            };
            let insert = profile_row::Entity::insert(empty);
            insert
                .on_conflict_do_nothing_on([profile_row::Column::Profile])
                .exec_without_returning(self.db)
                .await?;
            raise.exec(self.db).await?;
        }
        let row = profile_row::Entity::find_by_id(self.profile.as_str()).one(self.db).await?;
        row.ok_or_else(|| ToolError::not_found("memory profile", self.profile.as_str()))
    }

    async fn set_size(&self, size: Size, deleted_version: Option<i64>) -> Result<(), ToolError> {
        let mut update = profile_row::Entity::update_many()
            .col_expr(profile_row::Column::Chunks, size.chunks.into())
            .col_expr(profile_row::Column::Bytes, size.bytes.into())
            .col_expr(profile_row::Column::IndexBytes, size.index_bytes.into());
        if let Some(version) = deleted_version {
            update = update.col_expr(profile_row::Column::DeletedVersion, version.into());
        }
        update.filter(profile_row::Column::Profile.eq(self.profile.as_str())).exec(self.db).await?;
        Ok(())
    }

    /// Deletes a text that fulfils a condition; fails if there is none.
    async fn delete_rows(&self, path: &str, condition: Condition) -> Result<(), ToolError> {
        let key = (self.profile.to_string(), path.to_owned());
        let delete = source::Entity::delete_by_id(key).filter(condition);
        if delete.exec(self.db).await?.rows_affected == 0 {
            return Err(not_found(path));
        }
        chunk::Entity::delete_many().filter(self.of_path(path)).exec(self.db).await?;
        Ok(())
    }

    fn of_path(&self, path: &str) -> Condition {
        let of_profile = chunk::Column::Profile.eq(self.profile.as_str());
        Condition::all().add(of_profile).add(chunk::Column::Path.eq(path))
    }
}

impl Size {
    fn of(row: &source::Model) -> Self {
        Self { chunks: row.chunks, bytes: row.bytes, index_bytes: row.index_bytes }
    }

    fn of_profile(row: &profile_row::Model) -> Self {
        Self { chunks: row.chunks, bytes: row.bytes, index_bytes: row.index_bytes }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            chunks: self.chunks + other.chunks,
            bytes: self.bytes + other.bytes,
            index_bytes: self.index_bytes + other.index_bytes,
        }
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self { chunks: -other.chunks, bytes: -other.bytes, index_bytes: -other.index_bytes })
    }

    fn check(self, settings: &MemorySettings, profile: &MemoryProfile) -> Result<(), ToolError> {
        let limits = [
            ("chunks", self.chunks, settings.max_chunks, "memory.max_chunks"),
            ("bytes of text", self.bytes, settings.max_bytes, "memory.max_bytes"),
            ("bytes in memory when searched", self.index_bytes, settings.index_bytes, "memory.index_bytes"),
        ];
        for (what, would_be, limit, setting) in limits {
            if would_be > to_signed(limit) {
                return Err(ToolError::Conflict(format!(
                    "the memory profile `{profile}` would have {would_be} {what}; the limit is {limit}: \
                     delete what is no longer needed, or raise the setting {setting} of the gateway"
                )));
            }
        }
        Ok(())
    }
}

/// Where a piece of a text begins. A text that was replaced has another version.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    version: i64,
    number: i64,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, ToolError> {
        let parts = text.split_once('.').and_then(|(version, number)| {
            Some(Self { version: version.parse().ok()?, number: number.parse::<u32>().ok()?.into() })
        });
        parts.ok_or_else(Self::invalid)
    }

    fn invalid() -> ToolError {
        ToolError::Invalid("`cursor` must be the `next_cursor` of the piece before".to_owned())
    }
}

/// Puts a piece of a text together.
fn content(row: source::Model, chunks: Vec<chunk::Model>) -> Result<Content, ToolError> {
    let first_line = chunks.first().map_or(0, |chunk| chunk.first_line);
    let (mut text, mut last_line, mut next) = (String::new(), first_line, 0);
    for chunk in chunks {
        if !text.is_empty() && text.len() + chunk.text.len() > CONTENT_BYTES {
            break;
        }
        text.push_str(&chunk.text);
        (last_line, next) = (chunk.last_line, chunk.number + 1);
    }
    let next_cursor = (next < row.chunks).then(|| format!("{}.{next}", row.version));
    Ok(Content { source: describe(row)?, first_line, last_line, text, next_cursor })
}

fn is_same(before: &source::Model, prepared: &PreparedMemory, tags: &str) -> bool {
    before.digest == prepared.digest
        && before.source == prepared.new.source
        && before.tags == tags
        && before.expires_at == prepared.new.expires_at
}

pub(super) fn has_expired(row: &source::Model, now: i64) -> bool {
    row.expires_at.is_some_and(|at| at <= now)
}

fn not_found(path: &str) -> ToolError {
    ToolError::not_found("memory", path)
}

fn replaced(path: &str) -> ToolError {
    ToolError::Conflict(format!(
        "the memory `{path}` was replaced meanwhile; read it again from its beginning"
    ))
}

pub(super) fn read_tags(row: &source::Model) -> Result<Vec<String>, ToolError> {
    serde_json::from_str(&row.tags)
        .map_err(|_| ToolError::Store(sea_orm::DbErr::Type(format!("the tags of {} are not JSON", row.path))))
}

fn describe(row: source::Model) -> Result<Source, ToolError> {
    Ok(Source {
        tags: read_tags(&row)?,
        path: row.path,
        profile: row.profile,
        source: row.source,
        digest: row.digest,
        bytes: row.bytes,
        chunks: row.chunks,
        created_at: clock::text(row.created_at),
        updated_at: clock::text(row.updated_at),
        expires_at: row.expires_at.map(clock::text),
    })
}

fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
