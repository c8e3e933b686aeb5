//! Adds what is known of the requests of a turn: whether its answer was delivered, and how many wait for it.

use sea_orm_migration::{prelude::*, schema::*};

use super::Index;

pub(super) struct Requests;

impl MigrationName for Requests {
    fn name(&self) -> &str {
        "m0009_requests"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Requests {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for mut column in [big_integer_null("delivered_at"), big_integer("waiting").default(1).to_owned()] {
            manager.alter_table(Table::alter().table("turn").add_column(&mut column).to_owned()).await?;
        }
        // Finds the open turns of an API key.
        manager.create_index(Index::plain("turn", &["key_id", "state", "created_at"]).statement()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
