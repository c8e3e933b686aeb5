//! Numbers the checkpoints of workflows in the order in which the gateway stored them. Their ids have the
//! time of the runner that made them, and clocks of runners differ.

use sea_orm_migration::{prelude::*, schema::*, sea_orm::DbBackend};

pub(super) struct CheckpointOrder;

impl MigrationName for CheckpointOrder {
    fn name(&self) -> &str {
        "m0018_checkpoint_order"
    }
}

/// The number of a checkpoint that is there already: how many of its workflow were stored until then.
const NUMBER: &str = "(SELECT COUNT(*) FROM workflow_history earlier \
                      WHERE earlier.task_id = workflow_history.task_id \
                      AND (earlier.created_at < workflow_history.created_at \
                      OR (earlier.created_at = workflow_history.created_at \
                      AND earlier.checkpoint_id <= workflow_history.checkpoint_id)))";

#[async_trait::async_trait]
impl MigrationTrait for CheckpointOrder {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        // SQLite adds no column without a default that must have a value.
        let is_sqlite = manager.get_database_backend() == DbBackend::Sqlite;
        let mut sequence = if is_sqlite {
            big_integer("sequence").default(0).to_owned()
        } else {
            big_integer_null("sequence")
        };
        let add = Table::alter().table("workflow_history").add_column(&mut sequence).to_owned();
        manager.alter_table(add).await?;
        let connection = manager.get_connection();
        let number =
            Query::update().table("workflow_history").value("sequence", Expr::cust(NUMBER)).to_owned();
        connection.execute(&number).await?;
        if !is_sqlite {
            // A gateway of before that still runs is refused by the database; its runner calls again.
            let required = "ALTER TABLE workflow_history ALTER COLUMN sequence SET NOT NULL";
            connection.execute_unprepared(required).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
