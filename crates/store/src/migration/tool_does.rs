//! Adds the `does` column to tool settings, and indexes by run.

use sea_orm_migration::{prelude::*, schema::*};

use super::Index;

/// The column holds an administrator's statement whether a tool has effects. The indexes serve every call
/// that names a run, since the tasks of the run are looked up.
pub(super) struct ToolDoes;

impl MigrationName for ToolDoes {
    fn name(&self) -> &str {
        "m0002_tool_does"
    }
}

const INDEXES: [Index; 2] = [Index::plain("task", &["run_id"]), Index::plain("job", &["run_id"])];

#[async_trait::async_trait]
impl MigrationTrait for ToolDoes {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let column = Table::alter().table("tool_setting").add_column(string_null("does")).to_owned();
        manager.alter_table(column).await?;
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
