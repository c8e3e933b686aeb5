//! Adds an index that finds earlier messages of the outbox with the same key.

use sea_orm_migration::prelude::*;

use super::Index;

pub(super) struct OutboxOrder;

impl MigrationName for OutboxOrder {
    fn name(&self) -> &str {
        "m0022_outbox_order"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for OutboxOrder {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.create_index(Index::plain("outbox", &["ordering", "id"]).statement()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
