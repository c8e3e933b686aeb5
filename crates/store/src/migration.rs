//! Schema migrations. A released migration is never edited; every change to the schema is a new migration.

mod calls;
mod checkpoint_order;
mod decisions;
mod edge;
mod egress;
mod job_handoffs;
mod jobs;
mod lease_profiles;
mod leases;
mod memory;
mod node_identity;
mod open_turns;
mod outbox;
mod outbox_order;
mod profiles;
mod requests;
mod schedules;
mod threads;
mod tool_does;
mod turn_cancels;
mod turn_waits;
mod work;
mod workflow_handoffs;
mod workflows;

use sea_orm_migration::{prelude::*, sea_orm::DbBackend};

#[derive(Debug)]
pub(super) struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(InitialSchema),
            Box::new(tool_does::ToolDoes),
            Box::new(leases::Leases),
            Box::new(outbox::Outbox),
            Box::new(profiles::Profiles),
            Box::new(threads::Threads),
            Box::new(egress::Egress),
            Box::new(schedules::Schedules),
            Box::new(requests::Requests),
            Box::new(jobs::Jobs),
            Box::new(edge::Edge),
            Box::new(node_identity::NodeIdentity),
            Box::new(workflows::Workflows),
            Box::new(memory::Memory),
            Box::new(lease_profiles::LeaseProfiles),
            Box::new(open_turns::OpenTurns),
            Box::new(job_handoffs::JobHandoffs),
            Box::new(checkpoint_order::CheckpointOrder),
            Box::new(workflow_handoffs::WorkflowHandoffs),
            Box::new(turn_cancels::TurnCancels),
            Box::new(turn_waits::TurnWaits),
            Box::new(outbox_order::OutboxOrder),
        ]
    }
}

/// Creates the initial schema.
struct InitialSchema;

impl MigrationName for InitialSchema {
    fn name(&self) -> &str {
        "m0001_begin"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for InitialSchema {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let is_sqlite = manager.get_database_backend() == DbBackend::Sqlite;
        for mut table in [decisions::tables(), calls::tables(), work::tables()].concat() {
            if is_sqlite && table.get_table_name() == Some(&"in_flight".into()) {
                // A row is inserted and deleted with every call; WITHOUT ROWID avoids a second B-tree for its
                // text key.
                table.extra("WITHOUT ROWID");
            }
            manager.create_table(table).await?;
        }
        for index in [decisions::INDEXES, calls::INDEXES, work::INDEXES].concat() {
            manager.create_index(index.statement()).await?;
        }
        let rows = [
            Query::insert()
                .into_table("audit_pruned")
                .columns(["id", "seq", "hash"])
                .values_panic([1.into(), 0.into(), "".into()])
                .to_owned(),
            Query::insert()
                .into_table("revision")
                .columns(["id", "value"])
                .values_panic([1.into(), 1.into()])
                .to_owned(),
        ];
        for row in rows {
            manager.get_connection().execute(&row).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("the initial schema cannot be reverted; restore a backup instead".to_owned()))
    }
}

fn table(name: &'static str, key: &[&'static str], columns: Vec<ColumnDef>) -> TableCreateStatement {
    let mut table = Table::create().table(name).to_owned();
    for mut column in columns {
        table.col(&mut column);
    }
    let mut primary = sea_orm_migration::prelude::Index::create().primary().to_owned();
    for column in key {
        primary.col(*column);
    }
    table.primary_key(&mut primary).to_owned()
}

#[derive(Clone, Copy, Debug)]
struct Index {
    table: &'static str,
    columns: &'static [&'static str],
    unique: bool,
}

impl Index {
    const fn unique(table: &'static str, columns: &'static [&'static str]) -> Self {
        Self { table, columns, unique: true }
    }

    const fn plain(table: &'static str, columns: &'static [&'static str]) -> Self {
        Self { table, columns, unique: false }
    }

    fn statement(self) -> IndexCreateStatement {
        let name = format!("{}_by_{}", self.table, self.columns.join("_"));
        let mut index = sea_orm_migration::prelude::Index::create().name(name).table(self.table).to_owned();
        for column in self.columns {
            index.col(*column);
        }
        if self.unique {
            index.unique();
        }
        index
    }
}
