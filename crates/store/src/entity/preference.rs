//! A preference in one scope. A deleted row is kept, so that its version numbers continue when it is set
//! again.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "preference")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub scope_type: String,
    pub scope_id: String,
    pub key: String,
    #[sea_orm(column_type = "Text")]
    pub value: String,
    pub value_type: String,
    pub version: i64,
    pub deleted: bool,
    pub updated_at: i64,
    pub updated_by: String,
}

super::plain_entity!();
