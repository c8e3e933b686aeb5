//! Adds threads and their turns, and what an API key decides about requests.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Threads;

impl MigrationName for Threads {
    fn name(&self) -> &str {
        "m0006_threads"
    }
}

const INDEXES: [Index; 6] = [
    Index::plain("thread", &["user_id", "updated_at"]),
    Index::plain("thread", &["user_id", "history_hash"]),
    Index::unique("turn", &["thread_id", "position"]),
    // One turn for each named request, also with several gateways. Requests without a name do not conflict.
    Index::unique("turn", &["key_id", "user_id", "request_key"]),
    Index::plain("turn", &["key_id", "body_hash", "created_at"]),
    Index::plain("turn", &["unsent_since"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Threads {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let threads = table(
            "thread",
            &["id"],
            vec![
                string("id"),
                string("user_id"),
                string_null("name"),
                string("title"),
                big_integer("turn_count"),
                string_null("open_turn"),
                string_null("open_question"),
                string("history_hash"),
                big_integer("created_at"),
                big_integer("updated_at"),
            ],
        );
        let turns = table(
            "turn",
            &["id"],
            vec![
                string("id"),
                string("thread_id"),
                string("user_id"),
                string("key_id"),
                big_integer("position"),
                string_null("continues"),
                string_null("request_key"),
                string("body_hash"),
                text_null("context"),
                text("messages"),
                text("options"),
                string_null("state"),
                text_null("answer"),
                big_integer("created_at"),
                big_integer_null("unsent_since"),
                big_integer_null("sent_at"),
                big_integer_null("ended_at"),
            ],
        );
        for table in [threads, turns] {
            manager.create_table(table).await?;
        }
        for mut column in [
            boolean("is_front_end").default(false).to_owned(),
            string("on_disconnect").default("continue").to_owned(),
        ] {
            manager.alter_table(Table::alter().table("token").add_column(&mut column).to_owned()).await?;
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
