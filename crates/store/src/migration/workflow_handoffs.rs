//! Keeps handoffs of workflows until they are answered, since the streams may lose them.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct WorkflowHandoffs;

impl MigrationName for WorkflowHandoffs {
    fn name(&self) -> &str {
        "m0019_workflow_handoffs"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for WorkflowHandoffs {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let columns = vec![
            string("id"),
            string("task_id"),
            string("kind"),
            big_integer("began_at"),
            big_integer_null("sent_at"),
            string_null("traceparent"),
            text("body"),
        ];
        manager.create_table(table("workflow_handoff", &["id"], columns)).await?;
        manager.create_index(Index::plain("workflow_handoff", &["sent_at"]).statement()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
