//! A call that may have an effect is written down before it has. If its gateway ends before it gets its row, it gets it here.

use std::{collections::BTreeSet, io, path::Path};

use sea_orm::{
    ActiveValue::Set, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::LockType,
};
use tracing::warn;

use super::{
    begun_log,
    chain::{append, last, lock, was_too_late},
    record::Record,
};
use crate::{
    clock,
    store::{
        Store, Write,
        entity::{audit, in_flight},
    },
};

/// As many as one query may name.
const AT_ONCE: usize = 1000;

pub(crate) fn intent(record: Record, until: i64) -> Result<in_flight::ActiveModel, DbErr> {
    let record = record.cut_off();
    let text = serde_json::to_string(&record).map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(in_flight::ActiveModel { call_id: Set(record.call_id), expires_at: Set(until), record: Set(text) })
}

/// Gives calls that nobody will end any more their rows. With `all`, whoever calls knows that no other instance is there.
pub async fn recover(store: &Store, all: bool) -> Result<usize, DbErr> {
    let mut count = 0;
    if let Some(path) = store.begun_log().filter(|_| all) {
        count += logged(store, path).await?;
    }
    loop {
        match some(store, all).await {
            Ok((0, _)) => return Ok(count),
            Ok((_, recovered)) => count += recovered,
            Err(error) if was_too_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Those in the file, which is cleared when all of them have their rows and not before.
async fn logged(store: &Store, path: &Path) -> Result<usize, DbErr> {
    let unreadable = |error: io::Error| DbErr::Custom(format!("{}: {error}", path.display()));
    let left = begun_log::left(path).map_err(unreadable)?;
    if left.is_empty() {
        return Ok(0);
    }
    let mut count = 0;
    for records in left.chunks(AT_ONCE) {
        let write = store.write().await?;
        count += give_rows(&write, records.to_vec()).await?;
        write.commit().await?;
    }
    begun_log::clear(path).map_err(unreadable)?;
    Ok(count)
}

/// How many were looked at, and how many of them had no row yet.
async fn some(store: &Store, all: bool) -> Result<(usize, usize), DbErr> {
    let write = store.write().await?;
    lock(&write).await?;
    let mut query = in_flight::Entity::find().limit(AT_ONCE as u64);
    if !all {
        query = query.filter(in_flight::Column::ExpiresAt.lt(clock::now()));
    }
    let lost = query.lock(LockType::Update).all(&*write).await?;
    if lost.is_empty() {
        return Ok((0, 0));
    }
    let ids: Vec<String> = lost.iter().map(|call| call.call_id.clone()).collect();
    let mut records = Vec::new();
    for call in &lost {
        match serde_json::from_str::<Record>(&call.record) {
            Ok(record) => records.push(record),
            Err(error) => warn!(%error, call_id = call.call_id, "Started-call record is unreadable."),
        }
    }
    let recovered = give_rows(&write, records).await?;
    in_flight::Entity::delete_many().filter(in_flight::Column::CallId.is_in(ids)).exec(&*write).await?;
    write.commit().await?;
    Ok((lost.len(), recovered))
}

/// Rows for those who have none; how many that were. That a call ended is forgotten a little later than its row is written.
async fn give_rows(write: &Write, mut records: Vec<Record>) -> Result<usize, DbErr> {
    let ended = with_rows(&**write, &records).await?;
    records.retain(|record| !ended.contains(&record.call_id));
    let count = records.len();
    if count > 0 {
        append(&**write, &last(&**write).await?, records).await?;
    }
    Ok(count)
}

/// The ids of those calls that have their rows.
pub(super) async fn with_rows<'r>(
    db: &impl ConnectionTrait,
    records: impl IntoIterator<Item = &'r Record>,
) -> Result<BTreeSet<String>, DbErr> {
    let ids = records.into_iter().map(|record| record.call_id.as_str());
    let found: Vec<String> = audit::Entity::find()
        .select_only()
        .column(audit::Column::CallId)
        .filter(audit::Column::CallId.is_in(ids))
        .into_tuple()
        .all(db)
        .await?;
    Ok(found.into_iter().collect())
}
