//! A counter by which one of several equal nodes is chosen in turn.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "round_robin")]
pub struct Model {
    /// The property that the nodes share.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    pub next: i64,
}

super::plain_entity!();
