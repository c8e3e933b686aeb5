//! An MCP server behind the gateway.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "upstream")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub namespace: String,
    pub owner: Option<String>,
    #[sea_orm(column_type = "Text")]
    pub transport: String,
    pub prefix: bool,
    pub scope: String,
    pub enabled: bool,
    pub call_timeout_ms: i64,
    pub concurrency: i32,
    pub created_at: i64,
    pub created_by: String,
}

super::plain_entity!();
