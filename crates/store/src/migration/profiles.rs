//! Adds the memory profile of a call to the audit.

use sea_orm_migration::{prelude::*, schema::*};

pub(super) struct Profiles;

impl MigrationName for Profiles {
    fn name(&self) -> &str {
        "m0005_profiles"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for Profiles {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let column = Table::alter().table("audit").add_column(string_null("profile")).to_owned();
        manager.alter_table(column).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
