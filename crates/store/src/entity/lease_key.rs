//! A public key whose leases all gateways on this store accept.

use sea_orm::entity::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
#[sea_orm(table_name = "lease_key")]
pub struct Model {
    /// A public nkey.
    #[sea_orm(primary_key, auto_increment = false)]
    pub key: String,
    pub created_at: i64,
}

super::plain_entity!();
