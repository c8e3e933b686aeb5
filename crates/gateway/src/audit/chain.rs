//! The end of the chain. Whoever adds to it says which row comes last; if somebody else was faster, the number is taken, the
//! store says so, and one looks again. So one statement is enough, however many instances write.

use sea_orm::{ConnectionTrait, DbErr, EntityTrait, QueryOrder, SqlErr};
use subjects::audit::Row;

use super::record::{Record, to_model};
use crate::store::entity::{audit, audit_pruned};

/// The last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) seq: i64,
    pub(super) hash: String,
}

/// Where the chain begins and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub seq: i64,
    pub hash: String,
    /// The rows up to this one were kept long enough and are gone.
    pub pruned_seq: i64,
    pub pruned_hash: String,
}

pub async fn ends(db: &impl ConnectionTrait) -> Result<Ends, DbErr> {
    let pruned = audit_pruned::Entity::find_by_id(1).one(db).await?;
    let pruned = pruned.ok_or_else(|| DbErr::RecordNotFound("where the audit begins".to_owned()))?;
    let last = audit::Entity::find().order_by_desc(audit::Column::Seq).one(db).await?;
    let (seq, hash) = match last {
        Some(last) => (last.seq, last.hash),
        None => (pruned.seq, pruned.hash.clone()),
    };
    Ok(Ends { seq, hash, pruned_seq: pruned.seq, pruned_hash: pruned.hash })
}

pub(super) async fn last(db: &impl ConnectionTrait) -> Result<Last, DbErr> {
    let ends = ends(db).await?;
    Ok(Last { seq: ends.seq, hash: ends.hash })
}

/// The rows that come after `last`, and which is the last then.
pub(super) fn following(last: &Last, records: Vec<Record>) -> (Vec<Row>, Last) {
    let Last { mut seq, mut hash } = last.clone();
    let mut rows = Vec::with_capacity(records.len());
    for record in records {
        seq += 1;
        let row = record.chained(seq, &hash);
        hash.clone_from(&row.hash);
        rows.push(row);
    }
    (rows, Last { seq, hash })
}

/// Adds rows after `last`, and gives what is the last then.
pub(super) async fn append(
    db: &impl ConnectionTrait,
    last: &Last,
    records: Vec<Record>,
) -> Result<Last, DbErr> {
    let (rows, last) = following(last, records);
    let rows = rows.into_iter().map(|row| audit::ActiveModel::from(to_model(row)));
    audit::Entity::insert_many(rows).exec_without_returning(db).await?;
    Ok(last)
}

/// Somebody else added a row where we wanted to.
pub(super) fn was_too_late(error: &DbErr) -> bool {
    matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_)))
}
