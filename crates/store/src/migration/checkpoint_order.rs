//! Numbers the checkpoints of workflows in the order in which the gateway stored them. Their ids have the
//! time of the runner that made them, and clocks of runners differ.

use sea_orm_migration::{prelude::*, schema::*, sea_orm::DbBackend};

use super::Index;

pub(super) struct CheckpointOrder;

impl MigrationName for CheckpointOrder {
    fn name(&self) -> &str {
        "m0018_checkpoint_order"
    }
}

/// Numbers the checkpoints that are there already. Those of one epoch are of one runner, whose ids are in
/// order. The times of their rows are of gateways whose clocks may differ.
const NUMBER: &str = "UPDATE workflow_history SET sequence = numbered.place FROM ( \
                      SELECT task_id, namespace, checkpoint_id, ROW_NUMBER() OVER ( \
                      PARTITION BY task_id ORDER BY epoch, checkpoint_id, namespace) AS place \
                      FROM workflow_history) numbered \
                      WHERE workflow_history.task_id = numbered.task_id \
                      AND workflow_history.namespace = numbered.namespace \
                      AND workflow_history.checkpoint_id = numbered.checkpoint_id";
/// With all that finds the newest checkpoints, so that their large states are not read for it.
const ORDER: Index = Index::plain("workflow_history", &["task_id", "sequence", "namespace", "checkpoint_id"]);

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
        connection.execute_unprepared(NUMBER).await?;
        if !is_sqlite {
            // A gateway of before that still runs is refused by the database; its runner calls again.
            let required = "ALTER TABLE workflow_history ALTER COLUMN sequence SET NOT NULL";
            connection.execute_unprepared(required).await?;
        }
        manager.create_index(ORDER.statement()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
