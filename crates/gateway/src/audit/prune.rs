use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, sea_query::Expr};

use super::chain::lock;
use crate::store::{
    Store,
    entity::{audit, audit_pruned},
};

/// Takes out rows that are older than `before`, and keeps the hash that the chain now begins with.
pub async fn prune(store: &Store, before: i64) -> Result<u64, DbErr> {
    let write = store.write().await?;
    // Two gateways that prune at the same time would move the beginning of the chain back.
    lock(&write).await?;
    // From the beginning, without gaps: a row that is younger than one behind it ends it.
    let first_kept = audit::Entity::find()
        .filter(audit::Column::CreatedAt.gte(before))
        .order_by_asc(audit::Column::Seq)
        .one(&*write)
        .await?;
    let last_gone = match &first_kept {
        Some(kept) => audit::Entity::find_by_id(kept.seq - 1).one(&*write).await?,
        // Everything is old. The last row stays, so that there is something to hold a head against.
        None => {
            let last = audit::Entity::find().order_by_desc(audit::Column::Seq).one(&*write).await?;
            match last {
                Some(last) => audit::Entity::find_by_id(last.seq - 1).one(&*write).await?,
                None => None,
            }
        }
    };
    let Some(last_gone) = last_gone else { return Ok(0) };
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
