//! Ingests the audit of nodes: each line once, with its origin, and raises alarms for inconsistencies.
//!
//! - [`StreamPosition`]: where in the stream the lines of a lease were last found
//! - [`ingest()`]: appends the rows of new lines to the chain
//! - [`sweep()`]: finds missing lines

mod alarm;
mod ingest;
mod position;
mod sweep;

use sea_orm::{ColumnTrait, DbErr, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect};
use store::{
    Store,
    entity::{edge_alarm, edge_lease},
};

pub use alarm::AlarmKind;
pub use ingest::{Ingested, ingest, refuse_unbound};
pub use position::{EdgeMessage, EdgeMessages, StreamPosition};
pub use sweep::sweep;

/// Returns up to where in the stream the audit of a lease was taken over. `None` if the lease was not bound
/// to this node.
pub async fn position(store: &Store, node: &str, lease_id: &str) -> Result<Option<StreamPosition>, DbErr> {
    let row = edge_lease::Entity::find_by_id(lease_id).one(store.read()).await?;
    Ok(row.filter(|row| row.node == node).map(|row| StreamPosition::of(&row)))
}

/// Returns the leases that were bound to nodes last, newest first.
pub async fn leases(store: &Store, limit: u64) -> Result<Vec<edge_lease::Model>, DbErr> {
    let newest = edge_lease::Entity::find().order_by_desc(edge_lease::Column::BoundAt).limit(limit);
    newest.all(store.read()).await
}

/// Returns alarms, newest first: those that are not resolved, or all.
pub async fn alarms(store: &Store, only_open: bool, limit: u64) -> Result<Vec<edge_alarm::Model>, DbErr> {
    let mut query = edge_alarm::Entity::find().order_by_desc(edge_alarm::Column::RaisedAt).limit(limit);
    if only_open {
        query = query.filter(edge_alarm::Column::ResolvedAt.is_null());
    }
    query.all(store.read()).await
}

/// Counts the alarms that are not resolved.
pub async fn count_open_alarms(store: &Store) -> Result<u64, DbErr> {
    edge_alarm::Entity::find().filter(edge_alarm::Column::ResolvedAt.is_null()).count(store.read()).await
}
