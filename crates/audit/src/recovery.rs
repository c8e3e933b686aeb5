//! Writes rows for announced calls whose gateway ended before it recorded their outcome.

use std::{collections::BTreeSet, io, path::Path};

use sea_orm::{
    ActiveValue::Set, ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter, QuerySelect,
    sea_query::LockType,
};
use tracing::warn;

use super::{
    chain::{append, is_sequence_taken, last_row, lock_chain},
    in_flight_log,
    record::Record,
};
use store::{
    Store, WriteTransaction, clock,
    entity::{audit, in_flight},
};

/// Calls per transaction; their ids have to fit into one query.
const BATCH_SIZE: usize = 1000;

/// Builds the announcement of a call, which expires at `until`, by [`clock::now`].
pub fn in_flight_row(record: Record, until: i64) -> Result<in_flight::ActiveModel, DbErr> {
    let record = record.into_interrupted();
    let text = serde_json::to_string(&record).map_err(|error| DbErr::Custom(error.to_string()))?;
    let call_id = Set(record.call_id.clone());
    Ok(in_flight::ActiveModel { call_id, expires_at: Set(until), record: Set(text) })
}

/// Writes rows for calls whose announcement has expired; returns their number. `all` includes every announced
/// call and the in-flight log: pass it only if no other instance uses the store.
pub async fn recover(store: &Store, all: bool) -> Result<usize, DbErr> {
    let mut count = 0;
    store.follow_server_clock().await?;
    if let Some(path) = store.in_flight_log().filter(|_| all) {
        count += recover_logged(store, path).await?;
    }
    loop {
        match recover_batch(store, all).await {
            Ok((0, _)) => return Ok(count),
            Ok((_, recovered)) => count += recovered,
            Err(error) if is_sequence_taken(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Recovers the calls in the in-flight log, and clears it once all of them have rows.
async fn recover_logged(store: &Store, path: &Path) -> Result<usize, DbErr> {
    let unreadable = |error: io::Error| DbErr::Custom(format!("{}: {error}", path.display()));
    let logged = in_flight_log::read(path).map_err(unreadable)?;
    if logged.is_empty() {
        return Ok(0);
    }
    let mut count = 0;
    for records in logged.chunks(BATCH_SIZE) {
        let write = store.write().await?;
        count += append_missing(&write, records.to_vec()).await?;
        write.commit().await?;
    }
    in_flight_log::clear(path).map_err(unreadable)?;
    Ok(count)
}

/// Recovers one batch of announced calls. Returns how many announcements it removed, and how many of those
/// calls had no row yet.
async fn recover_batch(store: &Store, all: bool) -> Result<(usize, usize), DbErr> {
    let now = clock::now();
    let write = store.write().await?;
    lock_chain(&write).await?;
    let mut query = in_flight::Entity::find().limit(BATCH_SIZE as u64);
    if !all {
        query = query.filter(in_flight::Column::ExpiresAt.lt(now));
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
            Err(error) => warn!(%error, call_id = call.call_id, "In-flight record unreadable."),
        }
    }
    let recovered = append_missing(&write, records).await?;
    in_flight::Entity::delete_many().filter(in_flight::Column::CallId.is_in(ids)).exec(&*write).await?;
    write.commit().await?;
    Ok((lost.len(), recovered))
}

/// Appends rows for the calls that have none and returns their number. A call may have one already: its
/// announcement is removed a little later than its row is written.
async fn append_missing(write: &WriteTransaction, mut records: Vec<Record>) -> Result<usize, DbErr> {
    let recorded = recorded_ids(&**write, &records).await?;
    records.retain(|record| !recorded.contains(&record.call_id));
    let count = records.len();
    if count > 0 {
        append(&**write, &last_row(&**write).await?, records).await?;
    }
    Ok(count)
}

/// Returns the ids of those calls that already have a row.
pub(super) async fn recorded_ids<'r>(
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
