//! Adds the memory profile of a lease.

use sea_orm_migration::{prelude::*, schema::*};

pub(super) struct LeaseProfiles;

impl MigrationName for LeaseProfiles {
    fn name(&self) -> &str {
        "m0015_lease_profiles"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for LeaseProfiles {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        for table in ["lease", "edge_lease"] {
            let column = Table::alter().table(table).add_column(string_null("profile")).to_owned();
            manager.alter_table(column).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
