use sea_orm_migration::{prelude::*, schema::*};

use super::Index;

/// Adds what an administrator says about the effects of a tool, and indexes for runs: every call that names a run looks its tasks up.
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
        Err(DbErr::Migration(
            "a store is not taken back to an older shape; restore a backup instead".to_owned(),
        ))
    }
}
