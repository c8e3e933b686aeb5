//! Adds the cancels of turns that are due, and finds the leases of a handoff.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct TurnCancels;

impl MigrationName for TurnCancels {
    fn name(&self) -> &str {
        "m0020_turn_cancels"
    }
}

const INDEXES: [Index; 2] =
    [Index::plain("turn_cancel", &["due_at"]), Index::plain("lease", &["handoff_id"])];

#[async_trait::async_trait]
impl MigrationTrait for TurnCancels {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let columns = vec![string("id"), big_integer("begun_at"), big_integer("due_at")];
        manager.create_table(table("turn_cancel", &["id"], columns)).await?;
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
