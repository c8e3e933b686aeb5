//! What one user used of one external provider on one day. Calls count when they end.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "egress_usage")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub user_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub provider: String,
    /// `2026-11-17`, in UTC.
    #[sea_orm(primary_key, auto_increment = false)]
    pub day: String,
    pub calls: i64,
    /// Calls whose usage is an estimate.
    pub estimated_calls: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// Millionths of a US dollar.
    pub micro_usd: i64,
}

super::plain_entity!();
