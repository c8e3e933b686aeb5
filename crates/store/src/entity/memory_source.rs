//! One text of a memory profile, under its path.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "memory_source")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub profile: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub path: String,
    /// SHA-256 of the text, in hexadecimal digits.
    pub digest: String,
    /// Where the text comes from, such as an agent or an ingested folder.
    pub source: String,
    /// A JSON array of texts.
    pub tags: String,
    /// The version of the profile that the last change of this text made.
    pub version: i64,
    pub chunks: i64,
    pub bytes: i64,
    pub index_bytes: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub expires_at: Option<i64>,
}

super::plain_entity!();
