//! Adds the node of a token, and where in the stream the lines of a node were last found.

use sea_orm_migration::{prelude::*, schema::*};

pub(super) struct NodeIdentity;

impl MigrationName for NodeIdentity {
    fn name(&self) -> &str {
        "m0012_node_identity"
    }
}

#[async_trait::async_trait]
impl MigrationTrait for NodeIdentity {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let columns = [
            ("token", string_null("node")),
            // No message has this digest: the lines of older rows are read again, and none is taken twice.
            ("edge_lease", string("stream_digest").default("").to_owned()),
            ("edge_lease", big_integer("stream_lines").default(0).to_owned()),
            ("edge_lease", string("stream_head").default("").to_owned()),
        ];
        for (table, mut column) in columns {
            manager.alter_table(Table::alter().table(table).add_column(&mut column).to_owned()).await?;
        }
        Ok(())
    }

    async fn down(&self, _manager: &SchemaManager) -> Result<(), DbErr> {
        Err(DbErr::Migration("this migration cannot be reverted; restore a backup instead".to_owned()))
    }
}
