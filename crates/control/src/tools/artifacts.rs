//! `artifact.*`: the files of a task.

mod put;
mod read;

use contract::artifact::{Artifact, Get, List};
use sea_orm::{
    ColumnTrait, DatabaseExecutor, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect, Select,
};

use crate::{Entry, ToolError};
use store::{
    clock,
    entity::artifact::{self, Column},
};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<put::Put>(), Entry::of::<Get>(), Entry::of::<List>()]
}

/// The columns of an artifact without its content, which may be large.
#[derive(Debug, FromQueryResult)]
struct Metadata {
    id: String,
    task_id: String,
    run_id: Option<String>,
    path: String,
    media_type: String,
    size: i64,
    sha256: String,
    version: i64,
    created_at: i64,
    updated_at: i64,
}

impl Metadata {
    /// Restricts a query to these columns.
    fn select(query: Select<artifact::Entity>) -> Select<artifact::Entity> {
        query.select_only().columns([
            Column::Id,
            Column::TaskId,
            Column::RunId,
            Column::Path,
            Column::MediaType,
            Column::Size,
            Column::Sha256,
            Column::Version,
            Column::CreatedAt,
            Column::UpdatedAt,
        ])
    }
}

impl From<Metadata> for Artifact {
    fn from(metadata: Metadata) -> Self {
        Self {
            artifact_id: metadata.id,
            task_id: metadata.task_id,
            run_id: metadata.run_id,
            path: metadata.path,
            media_type: metadata.media_type,
            size: metadata.size,
            sha256: metadata.sha256,
            version: metadata.version,
            created_at: clock::text(metadata.created_at),
            updated_at: clock::text(metadata.updated_at),
        }
    }
}

impl From<artifact::Model> for Metadata {
    fn from(row: artifact::Model) -> Self {
        Self {
            id: row.id,
            task_id: row.task_id,
            run_id: row.run_id,
            path: row.path,
            media_type: row.media_type,
            size: row.size,
            sha256: row.sha256,
            version: row.version,
            created_at: row.created_at,
            updated_at: row.updated_at,
        }
    }
}

fn not_found(what: &str) -> ToolError {
    ToolError::not_found("artifact", what)
}

/// Returns the first files of a task, without their contents.
pub(crate) async fn list_first(
    db: &DatabaseExecutor<'_>,
    task: &str,
    limit: u64,
) -> Result<Vec<Artifact>, ToolError> {
    let query = artifact::Entity::find().filter(Column::TaskId.eq(task)).order_by_asc(Column::Path);
    let found = Metadata::select(query).limit(limit).into_model::<Metadata>().all(db).await?;
    Ok(found.into_iter().map(Artifact::from).collect())
}

/// Keeps a file of a task that a program of ours wrote: its first version, or the next one.
pub(crate) async fn keep(db: &DatabaseExecutor<'_>, now: i64, new: artifact::Model) -> Result<(), ToolError> {
    put::write(db, now, new, None).await.map(drop)
}
