//! A machine that runs jobs.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "node")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub name: String,
    /// As it last reported.
    pub status: String,
    /// Set only in rows that an administrator wrote by hand, before nodes reported themselves.
    #[sea_orm(column_type = "Text")]
    pub capabilities: String,
    /// When it last reported. Whether it is away follows from this and is not stored.
    pub seen_at: i64,
    pub pool: String,
    /// A JSON object.
    #[sea_orm(column_type = "Text")]
    pub labels: String,
    /// The process that reports.
    pub instance: Option<String>,
    /// When that process started.
    pub started_at: Option<i64>,
    /// The last report, as JSON.
    #[sea_orm(column_type = "Text", nullable)]
    pub report: Option<String>,
    pub cordoned: bool,
    pub drain_by: Option<i64>,
}

super::plain_entity!();
