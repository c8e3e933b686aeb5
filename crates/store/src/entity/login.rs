//! A console session of an administrator or user.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "login")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub hash: String,
    pub token_id: String,
    pub csrf: String,
    pub created_at: i64,
    pub expires_at: i64,
}

super::plain_entity!();
