//! Adds memories: what a profile holds, its sources, and their chunks.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Memory;

impl MigrationName for Memory {
    fn name(&self) -> &str {
        "m0014_memory"
    }
}

const INDEXES: [Index; 4] = [
    // Finds what changed since an index was loaded.
    Index::unique("memory_source", &["profile", "version"]),
    Index::plain("memory_source", &["expires_at"]),
    Index::plain("memory_chunk", &["profile", "version"]),
    Index::unique("memory_chunk", &["profile", "path", "number"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Memory {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let profiles = table(
            "memory_profile",
            &["profile"],
            vec![
                string("profile"),
                big_integer("version"),
                big_integer("deleted_version"),
                big_integer("chunks"),
                big_integer("bytes"),
                big_integer("index_bytes"),
            ],
        );
        let sources = table(
            "memory_source",
            &["profile", "path"],
            vec![
                string("profile"),
                text("path"),
                string("digest"),
                string("source"),
                text("tags"),
                big_integer("version"),
                big_integer("chunks"),
                big_integer("bytes"),
                big_integer("index_bytes"),
                big_integer("created_at"),
                big_integer("updated_at"),
                big_integer_null("expires_at"),
            ],
        );
        let chunks = table(
            "memory_chunk",
            &["id"],
            vec![
                string("id"),
                string("profile"),
                text("path"),
                big_integer("number"),
                big_integer("version"),
                big_integer("first_line"),
                big_integer("last_line"),
                text("text"),
                blob("features"),
            ],
        );
        for table in [profiles, sources, chunks] {
            manager.create_table(table).await?;
        }
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
