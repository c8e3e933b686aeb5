//! `artifact.*`: the files of a task.

mod path;
mod put;
mod read;

use schemars::JsonSchema;
use sea_orm::{FromQueryResult, QuerySelect, Select};
use serde::Serialize;

use super::{Entry, ToolError};
use crate::{
    clock,
    store::entity::artifact::{self, Column},
};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<put::Put>(), Entry::of::<read::Get>(), Entry::of::<read::List>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Artifact {
    artifact_id: String,
    task_id: String,
    run_id: Option<String>,
    path: String,
    media_type: String,
    /// In bytes.
    size: i64,
    sha256: String,
    version: i64,
    created_at: String,
    updated_at: String,
}

/// All but the content, which may be large.
#[derive(Debug, FromQueryResult)]
struct Head {
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

impl Head {
    fn of(query: Select<artifact::Entity>) -> Select<artifact::Entity> {
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

impl From<Head> for Artifact {
    fn from(head: Head) -> Self {
        Self {
            artifact_id: head.id,
            task_id: head.task_id,
            run_id: head.run_id,
            path: head.path,
            media_type: head.media_type,
            size: head.size,
            sha256: head.sha256,
            version: head.version,
            created_at: clock::text(head.created_at),
            updated_at: clock::text(head.updated_at),
        }
    }
}

impl From<artifact::Model> for Head {
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

fn missing(what: &str) -> ToolError {
    ToolError::not_found("artifact", what)
}
