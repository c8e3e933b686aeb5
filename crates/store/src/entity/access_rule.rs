//! An access rule: allows or denies calls by caller, tool and arguments.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "access_rule")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: String,
    pub position: i64,
    pub effect: String,
    pub agent: Option<String>,
    pub user_id: Option<String>,
    pub tool: String,
    pub argument: Option<String>,
    pub matches: Option<String>,
    pub note: String,
    pub created_at: i64,
    pub created_by: String,
}

super::plain_entity!();
