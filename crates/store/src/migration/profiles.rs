//! Adds the memory profile of a call to the audit, and that of a token.

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
        for table in ["audit", "token"] {
            let column = Table::alter().table(table).add_column(string_null("profile")).to_owned();
            manager.alter_table(column).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
