//! The end of the chain. In a file, whoever adds to it says which row comes last; if another part of this process was faster,
//! the number is taken, the store says so, and one looks again. On a server, gateways take turns by a lock.

use sea_orm::{ConnectionTrait, DbBackend, DbErr, EntityTrait, QueryOrder, QuerySelect, SqlErr};
use subjects::audit::Row;

use super::record::{Record, to_model};
use crate::store::{
    Write,
    entity::{audit, audit_pruned},
};

/// The advisory lock of the chain's end, within one database. The number is arbitrary and must never change: gateways of
/// several builds may share a database.
const LOCK: i64 = 0x6379_6e6f_6465_0001;

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
    let last = audit::Entity::find()
        .select_only()
        .columns([audit::Column::Seq, audit::Column::Hash])
        .order_by_desc(audit::Column::Seq)
        .into_tuple::<(i64, String)>()
        .one(db)
        .await?;
    match last {
        Some((seq, hash)) => Ok(Last { seq, hash }),
        None => ends(db).await.map(|ends| Last { seq: ends.seq, hash: ends.hash }),
    }
}

/// Keeps every other gateway from adding to the chain until the transaction ends. Taken before anything else that a
/// transaction locks, so that gateways wait for each other in one order. In a file there is one writer anyway.
pub(super) async fn lock(write: &Write) -> Result<(), DbErr> {
    if write.get_database_backend() == DbBackend::Postgres {
        write.execute_unprepared(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    }
    Ok(())
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
