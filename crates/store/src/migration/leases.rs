//! Adds leases, and the lease of a call to the audit.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Leases;

impl MigrationName for Leases {
    fn name(&self) -> &str {
        "m0003_leases"
    }
}

const INDEXES: [Index; 4] = [
    Index::plain("lease", &["issued_at"]),
    Index::plain("lease", &["user_id"]),
    Index::plain("lease", &["parent_id"]),
    Index::plain("audit", &["lease_id"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Leases {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let leases = table(
            "lease",
            &["id"],
            vec![
                string("id"),
                string_null("parent_id"),
                string("agent"),
                string("user_id"),
                string_null("project_id"),
                string_null("task_id"),
                string_null("run_id"),
                string_null("job_id"),
                string_null("handoff_id"),
                text_null("tools"),
                big_integer("issued_at"),
                string("issued_by"),
                big_integer("not_before"),
                big_integer("expires_at"),
                big_integer("renewable_until"),
                big_integer_null("revoked_at"),
                string_null("revoked_by"),
            ],
        );
        let keys = table("lease_key", &["key"], vec![string("key"), big_integer("created_at")]);
        for table in [leases, keys] {
            manager.create_table(table).await?;
        }
        let column = Table::alter().table("audit").add_column(string_null("lease_id")).to_owned();
        manager.alter_table(column).await?;
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
