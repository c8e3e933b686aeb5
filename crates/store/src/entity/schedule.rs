//! A schedule of a user. Its name is unique among them.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "schedule")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub name: String,
    /// JSON.
    #[sea_orm(column_type = "Text")]
    pub timing: String,
    /// JSON.
    #[sea_orm(column_type = "Text")]
    pub payload: String,
    pub enabled: bool,
    pub missed: String,
    pub missed_limit: i64,
    pub concurrency: String,
    pub timeout_seconds: i64,
    /// The first slot about which nothing is decided; `None` if there is none any more. A transaction that
    /// moves it on decides about the slots in between.
    pub next_at: Option<i64>,
    /// The last slot that was decided about. No earlier one fires.
    pub last_slot: Option<i64>,
    /// Changed by people only, not by firing.
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub updated_by: String,
}

super::plain_entity!();
