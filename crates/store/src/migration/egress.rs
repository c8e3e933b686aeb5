//! Adds the calls of agents to external providers, and what users used of them.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Egress;

impl MigrationName for Egress {
    fn name(&self) -> &str {
        "m0008_egress"
    }
}

const INDEXES: [Index; 3] = [
    Index::plain("egress_call", &["user_id", "provider", "outcome"]),
    Index::plain("egress_call", &["expires_at"]),
    Index::plain("egress_usage", &["day"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Egress {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let calls = table(
            "egress_call",
            &["id"],
            vec![
                string("id"),
                string("made_by"),
                string("agent"),
                string("token_id"),
                string("lease_id"),
                string("user_id"),
                string_null("project_id"),
                string_null("task_id"),
                string_null("run_id"),
                string_null("job_id"),
                string("provider"),
                string_null("model"),
                string("day"),
                big_integer("expected_prompt_tokens"),
                big_integer("expected_completion_tokens"),
                big_integer("expected_micro_usd"),
                big_integer("begun_at"),
                big_integer("expires_at"),
                big_integer_null("ended_at"),
                string_null("outcome"),
            ],
        );
        let usage = table(
            "egress_usage",
            &["user_id", "provider", "day"],
            vec![
                string("user_id"),
                string("provider"),
                string("day"),
                big_integer("calls"),
                big_integer("estimated_calls"),
                big_integer("prompt_tokens"),
                big_integer("completion_tokens"),
                big_integer("micro_usd"),
            ],
        );
        for table in [calls, usage] {
            manager.create_table(table).await?;
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
