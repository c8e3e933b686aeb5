//! A piece of a text of a memory profile.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "memory_chunk")]
pub struct Model {
    /// Made of profile, path, digest and place, so that it is the same in every store.
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub profile: String,
    pub path: String,
    /// Its place in the text, from 0.
    pub number: i64,
    /// The version of its source.
    pub version: i64,
    /// Lines are counted from 1.
    pub first_line: i64,
    pub last_line: i64,
    pub text: String,
    /// Features of the text, as stored for the index.
    pub features: Vec<u8>,
}

super::plain_entity!();
