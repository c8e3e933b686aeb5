//! Schedules another check of open turns whose handoffs were published before lost handoffs were detected.

use sea_orm_migration::prelude::*;

pub(super) struct OpenTurns;

impl MigrationName for OpenTurns {
    fn name(&self) -> &str {
        "m0016_open_turns"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for OpenTurns {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let listed = Query::update()
            .table("turn")
            .value("unsent_since", Expr::col("sent_at"))
            .and_where(Expr::col("state").is_null())
            .and_where(Expr::col("unsent_since").is_null())
            .to_owned();
        manager.get_connection().execute(&listed).await.map(drop)
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
