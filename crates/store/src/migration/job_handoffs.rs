//! Adds the handoff whose manager began a job, so that the job can end with it.

use sea_orm_migration::{prelude::*, schema::*};

use super::Index;

pub(super) struct JobHandoffs;

impl MigrationName for JobHandoffs {
    fn name(&self) -> &str {
        "m0017_job_handoffs"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for JobHandoffs {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let mut handoff = string_null("handoff_id");
        manager.alter_table(Table::alter().table("job").add_column(&mut handoff).to_owned()).await?;
        manager.create_index(Index::plain("job", &["handoff_id"]).statement()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
