//! A piece of a file that a running job has left. It becomes part of an artifact when the job ends.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "job_file")]
pub struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    pub job_id: String,
    pub attempt: i64,
    pub path: String,
    /// Where the piece begins in the file, in bytes.
    pub position: i64,
    /// Of the whole file, in bytes.
    pub size: i64,
    /// Of the whole file.
    pub sha256: String,
    pub content: Vec<u8>,
    pub created_at: i64,
}

super::plain_entity!();
