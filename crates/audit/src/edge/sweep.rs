//! Finds leases of nodes that have ended without their last line.

use std::time::Duration;

use sea_orm::{
    ActiveModelTrait,
    ActiveValue::Set,
    ColumnTrait, DbErr, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect,
    sea_query::{Condition, Expr, ExprTrait, Query},
};
use store::{
    Store, clock,
    entity::{edge_alarm, edge_lease, lease},
};

use super::{
    alarm::{AlarmKind, NewAlarm, raise},
    ingest::{PendingCalls, interrupted_rows},
};
use crate::chain::{append, last_row, lock_chain};

const BATCH: u64 = 100;

/// How long what is known of a lease is kept that is closed or was never used, in microseconds: longer than
/// the stream keeps its lines.
const KEEP_CLOSED: i64 = 100 * 24 * 60 * 60 * 1_000_000;

/// Raises an alarm for each lease that ended more than `grace` ago, because it expired or was revoked, and
/// whose last line did not come. Calls of it that have not ended get their row. A lease of which no line
/// came, and of which its node stated none, was never used, so it has no last line: a node states its first
/// line before it uses a lease. Returns how many alarms are new.
pub async fn sweep(store: &Store, grace: Duration) -> Result<u64, DbErr> {
    let grace = i64::try_from(grace.as_micros()).unwrap_or(i64::MAX);
    let before = clock::now().saturating_sub(grace);
    let alarmed = Query::select()
        .column(edge_alarm::Column::LeaseId)
        .from(edge_alarm::Entity)
        .and_where(edge_alarm::Column::Kind.eq(AlarmKind::NotClosed.as_str()))
        .to_owned();
    let revoked = Query::select()
        .column(lease::Column::Id)
        .from(lease::Entity)
        .and_where(
            Expr::col((lease::Entity, lease::Column::Id))
                .equals((edge_lease::Entity, edge_lease::Column::LeaseId)),
        )
        .and_where(lease::Column::RevokedAt.lt(before))
        .to_owned();
    let has_ended = Condition::any().add(edge_lease::Column::ExpiresAt.lt(before)).add(Expr::exists(revoked));
    let was_used =
        Condition::any().add(edge_lease::Column::Lines.gt(0)).add(edge_lease::Column::StatedLines.gt(0));
    let overdue = edge_lease::Entity::find()
        .filter(edge_lease::Column::ClosedAt.is_null())
        .filter(was_used.clone())
        .filter(has_ended)
        .filter(edge_lease::Column::LeaseId.not_in_subquery(alarmed));
    let long_ago = clock::now().saturating_sub(KEEP_CLOSED);
    let unused = Condition::all()
        .add(edge_lease::Column::ClosedAt.is_null())
        .add(edge_lease::Column::ExpiresAt.lt(long_ago))
        .add(was_used.not());
    let old = Condition::any().add(edge_lease::Column::ClosedAt.lt(long_ago)).add(unused);
    let is_old = edge_lease::Entity::find().filter(old.clone()).limit(1).one(store.read()).await?.is_some();
    if !is_old && overdue.clone().limit(1).one(store.read()).await?.is_none() {
        return Ok(0);
    }
    let write = store.write().await?;
    lock_chain(&write).await?;
    edge_lease::Entity::delete_many().filter(old).exec(&*write).await?;
    let mut raised = 0;
    for binding in overdue.limit(BATCH).lock_exclusive().all(&*write).await? {
        let mut alarms = vec![NewAlarm {
            kind: AlarmKind::NotClosed,
            line: u64::try_from(binding.lines).unwrap_or_default(),
            detail: format!("the lease has ended, and its last line did not come; {} came", binding.lines),
        }];
        if binding.stated_lines > binding.lines {
            let (stated, came) = (binding.stated_lines, binding.lines);
            alarms.push(NewAlarm {
                kind: AlarmKind::Truncated,
                line: u64::try_from(came).unwrap_or_default(),
                detail: format!("the node stated {stated} lines when it renewed the lease; {came} came"),
            });
        }
        raised += raise(&*write, &binding.node, &binding.lease_id, &alarms).await?;
        let mut pending: PendingCalls = serde_json::from_str(&binding.pending).unwrap_or_default();
        let records: Vec<_> = interrupted_rows(&binding, pending.clone()).collect();
        if !records.is_empty() {
            append(&*write, &last_row(&*write).await?, records).await?;
            pending.values_mut().for_each(|began| began.is_recorded = true);
            let mut change = binding.into_active_model();
            change.pending = Set(subjects::encode_json_text(&pending));
            change.update(&*write).await?;
        }
    }
    write.commit().await?;
    Ok(raised)
}
