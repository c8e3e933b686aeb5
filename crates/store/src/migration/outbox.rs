//! Adds the outbox: messages that are sent with a transaction.

use sea_orm_migration::{prelude::*, schema::*};

pub(super) struct Outbox;

impl MigrationName for Outbox {
    fn name(&self) -> &str {
        "m0004_outbox"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Outbox {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut table = Table::create();
        table.table("outbox").col(big_pk_auto("id"));
        for column in [string("subject"), string("message_id"), text("body"), big_integer("created_at")] {
            table.col(column);
        }
        manager.create_table(table).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
