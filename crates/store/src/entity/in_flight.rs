//! A call that may have an effect and has no audit row yet.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "in_flight")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub call_id: String,
    pub expires_at: i64,
    #[sea_orm(column_type = "Text")]
    pub record: String,
}

super::plain_entity!();
