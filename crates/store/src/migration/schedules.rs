//! Adds schedules and their runs.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Schedules;

impl MigrationName for Schedules {
    fn name(&self) -> &str {
        "m0007_schedules"
    }
}

const INDEXES: [Index; 6] = [
    Index::unique("schedule", &["user_id", "name"]),
    // What is due, and when the next is.
    Index::plain("schedule", &["enabled", "next_at"]),
    Index::plain("schedule_run", &["schedule_id", "slot"]),
    Index::plain("schedule_run", &["state", "claimed_at"]),
    Index::plain("schedule_run", &["timeout_at"]),
    Index::plain("schedule_run", &["cancel_due_at"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Schedules {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let schedules = table(
            "schedule",
            &["id"],
            vec![
                string("id"),
                string("user_id"),
                string_null("project_id"),
                string("name"),
                text("timing"),
                text("payload"),
                boolean("enabled"),
                string("missed"),
                big_integer("missed_limit"),
                string("concurrency"),
                big_integer("timeout_seconds"),
                big_integer_null("next_at"),
                big_integer_null("last_slot"),
                big_integer("version"),
                big_integer("created_at"),
                big_integer("updated_at"),
                string("updated_by"),
            ],
        );
        let runs = table(
            "schedule_run",
            &["id"],
            vec![
                string("id"),
                string("schedule_id"),
                string("user_id"),
                string_null("project_id"),
                big_integer("slot"),
                string("trigger"),
                string("state"),
                string_null("skip_reason"),
                big_integer_null("first_slot"),
                big_integer_null("slots"),
                text_null("payload"),
                big_integer("fired_at"),
                big_integer_null("claimed_at"),
                big_integer_null("sent_at"),
                big_integer_null("ended_at"),
                big_integer("deadline_at"),
                big_integer_null("timeout_at"),
                big_integer_null("cancel_due_at"),
                string_null("job_id"),
                text_null("answer"),
                string_null("error_code"),
            ],
        );
        for table in [schedules, runs] {
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
