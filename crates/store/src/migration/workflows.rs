//! Adds workflows, and headers of the outbox's messages.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Workflows;

impl MigrationName for Workflows {
    fn name(&self) -> &str {
        "m0013_workflows"
    }
}

const INDEXES: [Index; 4] = [
    Index::plain("workflow", &["status", "updated_at"]),
    Index::plain("workflow", &["user_id", "updated_at"]),
    Index::plain("workflow_event", &["task_id", "id"]),
    // Finds the workflow of a job or of a handoff.
    Index::plain("workflow_effect", &["id"]),
];

#[async_trait::async_trait]
impl MigrationTrait for Workflows {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let workflows = table(
            "workflow",
            &["task_id"],
            vec![
                string("task_id"),
                string("status"),
                big_integer("run"),
                string("trigger"),
                big_integer("epoch"),
                string_null("holder"),
                big_integer_null("lease_expires_at"),
                boolean("sent"),
                string_null("waiting_for"),
                text_null("question"),
                string_null("interrupt_id"),
                text_null("input"),
                text_null("steps"),
                text("policy"),
                big_integer("restarts"),
                text_null("error"),
                text_null("summary"),
                string("user_id"),
                string_null("project_id"),
                string("started_by"),
                text_null("tools"),
                string_null("profile"),
                big_integer("created_at"),
                big_integer("updated_at"),
                big_integer_null("ended_at"),
            ],
        );
        for table in [workflows, checkpoints(), history(), writes(), effects(), events()] {
            manager.create_table(table).await?;
        }
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        let mut headers = text_null("headers");
        manager.alter_table(Table::alter().table("outbox").add_column(&mut headers).to_owned()).await
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}

fn checkpoints() -> TableCreateStatement {
    let columns = vec![
        string("task_id"),
        big_integer("epoch"),
        string("checkpoint_id"),
        string_null("last_node_id"),
        text("state"),
        big_integer("updated_at"),
    ];
    table("workflow_checkpoint", &["task_id"], columns)
}

fn history() -> TableCreateStatement {
    let columns = vec![
        string("task_id"),
        text("namespace"),
        string("checkpoint_id"),
        string_null("parent_id"),
        string("kind"),
        blob("data"),
        text("metadata"),
        big_integer("epoch"),
        big_integer("created_at"),
    ];
    table("workflow_history", &["task_id", "namespace", "checkpoint_id"], columns)
}

fn writes() -> TableCreateStatement {
    let columns = vec![
        string("task_id"),
        text("namespace"),
        string("checkpoint_id"),
        string("write_task_id"),
        big_integer("idx"),
        text("task_path"),
        text("channel"),
        string("kind"),
        blob("data"),
    ];
    table("workflow_write", &["task_id", "namespace", "checkpoint_id", "write_task_id", "idx"], columns)
}

fn effects() -> TableCreateStatement {
    let columns = vec![
        string("task_id"),
        string("key"),
        string("kind"),
        string("id"),
        string_null("step"),
        string_null("lease_id"),
        big_integer("epoch"),
        big_integer("began_at"),
        big_integer_null("ended_at"),
        string_null("end_reason"),
        text_null("answer"),
        double_null("cost_usd"),
    ];
    table("workflow_effect", &["task_id", "key"], columns)
}

fn events() -> TableCreateStatement {
    let mut table = Table::create();
    table.table("workflow_event").col(big_pk_auto("id"));
    for column in [
        string("task_id"),
        big_integer("epoch"),
        big_integer("at"),
        string("node"),
        string_null("step"),
        string("outcome"),
        text_null("detail"),
    ] {
        table.col(column);
    }
    table
}
