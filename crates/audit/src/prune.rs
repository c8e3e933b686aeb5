//! Retention: deletes old rows from the beginning of the chain.

use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};

use super::chain::lock_chain;
use store::{
    Store,
    entity::{audit, audit_pruned},
};

/// Deletes rows older than `before` (microseconds) and stores the hash that the chain now begins with.
/// Returns the number of deleted rows.
///
/// Rows of nodes have the time of the node's clock, which may be wrong. Like the others they are in the order
/// in which they were written, so the rows of the gateway itself tell which are old.
pub async fn prune(store: &Store, before: i64) -> Result<u64, DbErr> {
    let write = store.write().await?;
    // Without the lock, two gateways that prune at the same time could move the beginning of the chain back.
    lock_chain(&write).await?;
    let own = || audit::Entity::find().filter(audit::Column::Node.is_null());
    // Only rows before the first one that is kept are deleted, so that the chain has no gap.
    let first_kept = own()
        .filter(audit::Column::CreatedAt.gte(before))
        .order_by_asc(audit::Column::Seq)
        .one(&*write)
        .await?;
    // What nodes wrote after the last old row may be younger than that.
    let mut old = own().order_by_desc(audit::Column::Seq);
    if let Some(kept) = &first_kept {
        old = old.filter(audit::Column::Seq.lt(kept.seq));
    }
    let Some(mut last_gone) = old.one(&*write).await? else { return Ok(0) };
    let last = audit::Entity::find().order_by_desc(audit::Column::Seq).one(&*write).await?;
    if last.is_some_and(|last| last.seq == last_gone.seq) {
        // Every row is old. The last one stays, so that signed heads can still be verified.
        match audit::Entity::find_by_id(last_gone.seq - 1).one(&*write).await? {
            Some(row) => last_gone = row,
            None => return Ok(0),
        }
    }
    let gone =
        audit::Entity::delete_many().filter(audit::Column::Seq.lte(last_gone.seq)).exec(&*write).await?;
    audit_pruned::Entity::update_many()
        .col_expr(audit_pruned::Column::Seq, Expr::value(last_gone.seq))
        .col_expr(audit_pruned::Column::Hash, Expr::value(last_gone.hash))
        .filter(audit_pruned::Column::Id.eq(1))
        .exec(&*write)
        .await?;
    write.commit().await?;
    Ok(gone.rows_affected)
}
