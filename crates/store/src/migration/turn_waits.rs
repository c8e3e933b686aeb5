//! Names the waits of requests for a turn, so that each counts once however often its call is repeated.

use sea_orm_migration::{prelude::*, schema::*};

pub(super) struct TurnWaits;

impl MigrationName for TurnWaits {
    fn name(&self) -> &str {
        "m0021_turn_waits"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for TurnWaits {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut wait_ids = text_null("wait_ids");
        manager.alter_table(Table::alter().table("turn").add_column(&mut wait_ids).to_owned()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
