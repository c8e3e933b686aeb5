//! Appends rows to the hash chain.
//!
//! With SQLite the writer remembers the last row; if another part of this process has appended since, the
//! sequence number is taken, the insert fails, and the writer reads the last row again. With PostgreSQL,
//! gateways take turns under an advisory lock.

use sea_orm::{ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryOrder, QuerySelect, SqlErr};
use subjects::audit::Row;

use super::record::{Record, to_model};
use store::{
    WriteTransaction,
    entity::{audit, audit_pruned},
};

/// Key of the PostgreSQL advisory lock for appending to the chain, within one database. The number is
/// arbitrary and must never change: gateways of several builds may share a database.
const LOCK: i64 = 0x6379_6e6f_6465_0001;

/// Sequence number and hash of the last row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastRow {
    pub(super) seq: i64,
    pub(super) hash: String,
}

/// Where the chain begins and ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The last row; that of the last pruned row if none is left.
    pub seq: i64,
    pub hash: String,
    /// The last row that retention has deleted.
    pub pruned_seq: i64,
    pub pruned_hash: String,
}

/// Reads where the chain begins and ends.
pub async fn bounds(db: &impl ConnectionTrait) -> Result<Bounds, DbErr> {
    let pruned = audit_pruned::Entity::find_by_id(1).one(db).await?;
    let pruned = pruned.ok_or_else(|| DbErr::RecordNotFound("where the audit begins".to_owned()))?;
    let last = audit::Entity::find().order_by_desc(audit::Column::Seq).one(db).await?;
    let (seq, hash) = match last {
        Some(last) => (last.seq, last.hash),
        None => (pruned.seq, pruned.hash.clone()),
    };
    Ok(Bounds { seq, hash, pruned_seq: pruned.seq, pruned_hash: pruned.hash })
}

/// Reads the last row; that of the last pruned row if the table is empty.
pub(super) async fn last_row(db: &impl ConnectionTrait) -> Result<LastRow, DbErr> {
    let last = audit::Entity::find()
        .select_only()
        .columns([audit::Column::Seq, audit::Column::Hash])
        .order_by_desc(audit::Column::Seq)
        .into_tuple::<(i64, String)>()
        .one(db)
        .await?;
    match last {
        Some((seq, hash)) => Ok(LastRow { seq, hash }),
        None => bounds(db).await.map(|bounds| LastRow { seq: bounds.seq, hash: bounds.hash }),
    }
}

/// Prevents other gateways from appending to the chain until the transaction ends. Take it before any other
/// lock of the transaction, so that gateways cannot deadlock. Does nothing with SQLite, which has one writer.
pub(super) async fn lock_chain(write: &WriteTransaction) -> Result<(), DbErr> {
    if write.get_database_backend() == DbBackend::Postgres {
        write.execute_unprepared(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    }
    Ok(())
}

/// Builds the rows that follow `last` in the chain; returns them and the new last row.
pub(super) fn chain_rows(last: &LastRow, records: Vec<Record>) -> (Vec<Row>, LastRow) {
    let LastRow { mut seq, mut hash } = last.clone();
    let mut rows = Vec::with_capacity(records.len());
    for record in records {
        seq += 1;
        let row = record.into_row(seq, &hash);
        hash.clone_from(&row.hash);
        rows.push(row);
    }
    (rows, LastRow { seq, hash })
}

/// Inserts rows after `last` and returns the new last row.
pub(super) async fn append(
    db: &impl ConnectionTrait,
    last: &LastRow,
    records: Vec<Record>,
) -> Result<LastRow, DbErr> {
    let (rows, last) = chain_rows(last, records);
    let rows = rows.into_iter().map(|row| audit::ActiveModel::from(to_model(row)));
    audit::Entity::insert_many(rows).exec_without_returning(db).await?;
    Ok(last)
}

/// Returns whether the insert failed because another writer used the sequence number.
pub(super) fn is_sequence_taken(error: &DbErr) -> bool {
    matches!(error.sql_err(), Some(SqlErr::UniqueConstraintViolation(_)))
}
