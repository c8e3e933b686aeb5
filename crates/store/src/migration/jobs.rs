//! Adds what is known of jobs in sandboxes and of the nodes that run them.

use sea_orm_migration::{prelude::*, schema::*};

use super::{Index, table};

pub(super) struct Jobs;

impl MigrationName for Jobs {
    fn name(&self) -> &str {
        "m0010_jobs"
    }
}

const INDEXES: [Index; 3] = [
    // Finds what waits for a node.
    Index::plain("job", &["queue", "status"]),
    Index::plain("job", &["status", "created_at"]),
    Index::unique("job_file", &["job_id", "attempt", "path", "position"]),
];

/// What old rows of the outbox are: events, in order per subject.
const EVENTS: &str = "CYNODE_EVENTS";

fn job_columns() -> [ColumnDef; 14] {
    [
        string_null("queue"),
        text_null("placement"),
        string_null("lease_id"),
        string_null("created_by"),
        big_integer("chain_sequence").default(0).to_owned(),
        big_integer("attempt").default(0).to_owned(),
        string_null("engine"),
        big_integer_null("started_at"),
        big_integer_null("ended_at"),
        string_null("end_kind"),
        text_null("log_tail"),
        text_null("problems"),
        big_integer_null("cancel_requested_at"),
        string_null("cancel_requested_by"),
    ]
}

fn node_columns() -> [ColumnDef; 7] {
    [
        string("pool").default("default").to_owned(),
        text("labels").default("{}").to_owned(),
        string_null("instance"),
        big_integer_null("started_at"),
        text_null("report"),
        boolean("cordoned").default(false).to_owned(),
        big_integer_null("drain_by"),
    ]
}

fn outbox_columns() -> [ColumnDef; 3] {
    [
        string("stream").default(EVENTS).to_owned(),
        string("ordering").default("").to_owned(),
        string_null("only_if"),
    ]
}

#[async_trait::async_trait]
impl MigrationTrait for Jobs {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let columns = job_columns().map(|column| ("job", column)).into_iter();
        let columns = columns.chain(node_columns().map(|column| ("node", column)));
        for (table, mut column) in columns.chain(outbox_columns().map(|column| ("outbox", column))) {
            manager.alter_table(Table::alter().table(table).add_column(&mut column).to_owned()).await?;
        }
        let mut files = Table::create();
        files.table("job_file").col(big_pk_auto("id"));
        for column in [
            string("job_id"),
            big_integer("attempt"),
            string("path"),
            big_integer("position"),
            big_integer("size"),
            string("sha256"),
            blob("content"),
            big_integer("created_at"),
        ] {
            files.col(column);
        }
        manager.create_table(files).await?;
        manager
            .create_table(table("round_robin", &["key"], vec![string("key"), big_integer("next")]))
            .await?;
        for index in INDEXES {
            manager.create_index(index.statement()).await?;
        }
        let ordering = Query::update()
            .table("outbox")
            .value("ordering", Expr::col("subject"))
            .and_where(Expr::col("ordering").eq(""))
            .to_owned();
        manager.get_connection().execute(&ordering).await.map(drop)
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
