//! Alarms about the audit of nodes.

use std::collections::{BTreeMap, btree_map::Entry};

use sea_orm::{
    ColumnTrait, ConnectionTrait, DbErr, EntityTrait, PaginatorTrait, QueryFilter,
    sea_query::{Expr, OnConflict},
};
use store::{clock, entity::edge_alarm};
use subjects::edge::Problem;

/// Kinds of alarms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlarmKind {
    /// A line is missing.
    Gap,
    /// A line was changed, cannot be read, or does not follow the one before it.
    Changed,
    /// The gateway bound no such lease.
    UnknownLease,
    /// The lease is for another node than the one that wrote.
    OtherNode,
    /// Another key than the node's signed: the lease is used by two holders.
    OtherHolder,
    /// A signature is not valid.
    BadSignature,
    /// Fewer lines came than the node had stated when it renewed the lease.
    Truncated,
    /// Other lines came than the node had stated when it renewed the lease.
    Replaced,
    /// The lease has ended, and its last line did not come.
    NotClosed,
    /// There are more lines than the lease permits, or lines after the last one.
    Overrun,
}

impl AlarmKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Changed => "changed",
            Self::UnknownLease => "unknown_lease",
            Self::OtherNode => "other_node",
            Self::OtherHolder => "other_holder",
            Self::BadSignature => "bad_signature",
            Self::Truncated => "truncated",
            Self::Replaced => "replaced",
            Self::NotClosed => "not_closed",
            Self::Overrun => "overrun",
        }
    }

    /// Returns whether the alarm ends when the missing lines arrive.
    pub(super) fn may_resolve(self) -> bool {
        matches!(self, Self::NotClosed | Self::Truncated)
    }
}

impl From<&Problem> for AlarmKind {
    fn from(problem: &Problem) -> Self {
        match problem {
            Problem::Missing(_) => Self::Gap,
            Problem::Unreadable(_) | Problem::Changed(_) | Problem::Unlinked(_) => Self::Changed,
            Problem::BadSignature(_) => Self::BadSignature,
            Problem::OtherHolder(..) => Self::OtherHolder,
            Problem::OtherLease(..) => Self::UnknownLease,
            Problem::AfterClose(_) => Self::Overrun,
        }
    }
}

/// An alarm to be raised.
#[derive(Clone, Debug)]
pub(super) struct NewAlarm {
    pub(super) kind: AlarmKind,
    pub(super) line: u64,
    pub(super) detail: String,
}

/// Alarms of one kind that a node can have. Later ones say nothing that these do not, and a hostile node can
/// give reasons without end.
const MAX_OF_KIND: u64 = 500;

/// Raises alarms, unless they were raised before. One that was resolved is raised again. A node that has
/// [`MAX_OF_KIND`] of a kind gets no more of it. Returns how many are new or raised again.
pub(super) async fn raise(
    db: &impl ConnectionTrait,
    node: &str,
    lease_id: &str,
    alarms: &[NewAlarm],
) -> Result<u64, DbErr> {
    let (mut raised, mut room) = (0, BTreeMap::new());
    for alarm in alarms {
        // Once for each line; lines that may still arrive have one alarm for the lease.
        let line = if alarm.kind.may_resolve() { 0 } else { alarm.line };
        let id = format!("{lease_id}/{node}/{}/{line}", alarm.kind.as_str());
        if alarm.kind.may_resolve() && reopen(db, &id, alarm).await? {
            raised += 1;
            continue;
        }
        let kind = alarm.kind.as_str();
        let left = match room.entry(kind) {
            Entry::Occupied(left) => left.into_mut(),
            Entry::Vacant(unknown) => {
                let of_kind = edge_alarm::Entity::find()
                    .filter(edge_alarm::Column::Node.eq(node))
                    .filter(edge_alarm::Column::Kind.eq(kind));
                unknown.insert(MAX_OF_KIND.saturating_sub(of_kind.count(db).await?))
            }
        };
        if *left == 0 {
            continue;
        }
        let row = edge_alarm::Model {
            id,
            node: node.to_owned(),
            lease_id: lease_id.to_owned(),
            kind: kind.to_owned(),
            line: stored_line(alarm),
            detail: alarm.detail.clone(),
            raised_at: clock::now(),
            resolved_at: None,
        };
        let insert = edge_alarm::Entity::insert(edge_alarm::ActiveModel::from(row));
        let conflict = OnConflict::column(edge_alarm::Column::Id).do_nothing().to_owned();
        let inserted = insert.on_conflict(conflict).exec_without_returning(db).await?;
        *left -= inserted.min(*left);
        raised += inserted;
    }
    Ok(raised)
}

/// Opens an alarm again that was resolved. Returns false if there is none.
async fn reopen(db: &impl ConnectionTrait, id: &str, alarm: &NewAlarm) -> Result<bool, DbErr> {
    let opened = edge_alarm::Entity::update_many()
        .col_expr(edge_alarm::Column::ResolvedAt, Expr::value(None::<i64>))
        .col_expr(edge_alarm::Column::RaisedAt, Expr::value(clock::now()))
        .col_expr(edge_alarm::Column::Line, Expr::value(stored_line(alarm)))
        .col_expr(edge_alarm::Column::Detail, Expr::value(alarm.detail.as_str()))
        .filter(edge_alarm::Column::Id.eq(id))
        .filter(edge_alarm::Column::ResolvedAt.is_not_null())
        .exec(db)
        .await?;
    Ok(opened.rows_affected > 0)
}

fn stored_line(alarm: &NewAlarm) -> i64 {
    i64::try_from(alarm.line).unwrap_or(i64::MAX)
}

/// Ends the alarms of a kind about a lease.
pub(super) async fn resolve(db: &impl ConnectionTrait, lease_id: &str, kind: AlarmKind) -> Result<(), DbErr> {
    edge_alarm::Entity::update_many()
        .col_expr(edge_alarm::Column::ResolvedAt, Expr::value(clock::now()))
        .filter(edge_alarm::Column::LeaseId.eq(lease_id))
        .filter(edge_alarm::Column::Kind.eq(kind.as_str()))
        .filter(edge_alarm::Column::ResolvedAt.is_null())
        .exec(db)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use store::{Durability, Options, Store};

    use super::*;
    use crate::edge::alarms;

    #[tokio::test]
    async fn alarm_that_was_resolved_is_raised_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        let patience = Duration::from_secs(2);
        let options = Options { url, max_connections: 2, patience, durability: Durability::Process };
        let store = Store::open(&options).await.expect("a store");
        let raise_at = async |line: u64| {
            let write = store.write().await.expect("a transaction");
            let alarm = NewAlarm { kind: AlarmKind::Truncated, line, detail: format!("{line} came") };
            let raised = raise(&*write, "n1", "l1", &[alarm]).await.expect("raised");
            write.commit().await.expect("committed");
            raised
        };
        assert_eq!((raise_at(3).await, raise_at(4).await), (1, 0), "once while it is open");
        let write = store.write().await.expect("a transaction");
        resolve(&*write, "l1", AlarmKind::Truncated).await.expect("resolved");
        write.commit().await.expect("committed");
        assert!(alarms(&store, true, 10).await.expect("alarms").is_empty());
        assert_eq!((raise_at(5).await, raise_at(6).await), (1, 0));
        let open = alarms(&store, true, 10).await.expect("alarms");
        assert_eq!((open.len(), open[0].line, &*open[0].detail), (1, 5, "5 came"));
    }
}
