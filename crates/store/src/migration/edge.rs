//! Adds leases that are bound to nodes, alarms about their audit, and the origin of rows that nodes wrote.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Edge;

impl MigrationName for Edge {
    fn name(&self) -> &str {
        "m0011_edge"
    }
}

const INDEXES: [Index; 2] =
    [Index::plain("edge_lease", &["closed_at", "expires_at"]), Index::plain("edge_alarm", &["raised_at"])];

#[async_trait::async_trait]
impl MigrationTrait for Edge {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let leases = table(
            "edge_lease",
            &["lease_id"],
            vec![
                string("lease_id"),
                string("parent_id"),
                string("node"),
                string("holder"),
                string("token"),
                string("agent"),
                string("user_id"),
                string_null("project_id"),
                string_null("task_id"),
                string_null("run_id"),
                string_null("job_id"),
                big_integer("audit_quota"),
                big_integer("bound_at"),
                big_integer("expires_at"),
                big_integer("lines"),
                string("head"),
                big_integer("stream_seq"),
                big_integer("stated_lines"),
                string("stated_head"),
                text("pending"),
                big_integer_null("closed_at"),
                string_null("close_reason"),
            ],
        );
        let alarms = table(
            "edge_alarm",
            &["id"],
            vec![
                string("id"),
                string("node"),
                string("lease_id"),
                string("kind"),
                big_integer("line"),
                text("detail"),
                big_integer("raised_at"),
                big_integer_null("resolved_at"),
            ],
        );
        for table in [leases, alarms] {
            manager.create_table(table).await?;
        }
        for column in [string_null("node"), big_integer_null("node_line")] {
            manager.alter_table(Table::alter().table("audit").add_column(column).to_owned()).await?;
        }
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
