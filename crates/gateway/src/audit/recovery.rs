//! A call that may have an effect is written down before it has. If its gateway ends before it gets its row, it gets it here.

use std::collections::BTreeSet;

use sea_orm::{
    ActiveValue::Set, ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect, sea_query::LockType,
};
use tracing::warn;

use super::{
    chain::{append, last, was_too_late},
    record::{Record, Status},
};
use crate::{
    clock,
    store::{
        Store,
        entity::{audit, in_flight},
    },
};

/// As many as one query may name.
const AT_ONCE: u64 = 1000;

pub(crate) fn intent(mut record: Record, until: i64) -> Result<in_flight::ActiveModel, DbErr> {
    record.status = Status::Unknown;
    record.error_type = Some("gateway_ended".to_owned());
    let text = serde_json::to_string(&record).map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(in_flight::ActiveModel { call_id: Set(record.call_id), expires_at: Set(until), record: Set(text) })
}

/// Gives calls that nobody will end any more their rows. With `all`, whoever calls knows that no other instance is there.
pub async fn recover(store: &Store, all: bool) -> Result<usize, DbErr> {
    let mut count = 0;
    loop {
        match some(store, all).await {
            Ok((0, _)) => return Ok(count),
            Ok((_, recovered)) => count += recovered,
            Err(error) if was_too_late(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// How many were looked at, and how many of them had no row yet.
async fn some(store: &Store, all: bool) -> Result<(usize, usize), DbErr> {
    let write = store.write().await?;
    let mut query = in_flight::Entity::find().limit(AT_ONCE);
    if !all {
        query = query.filter(in_flight::Column::ExpiresAt.lt(clock::now()));
    }
    let lost = query.lock(LockType::Update).all(&*write).await?;
    if lost.is_empty() {
        return Ok((0, 0));
    }
    let ids: Vec<String> = lost.iter().map(|call| call.call_id.clone()).collect();
    // That a call ended is forgotten a little later than its row is written.
    let ended: Vec<String> = audit::Entity::find()
        .select_only()
        .column(audit::Column::CallId)
        .filter(audit::Column::CallId.is_in(ids.clone()))
        .into_tuple()
        .all(&*write)
        .await?;
    let ended: BTreeSet<String> = ended.into_iter().collect();
    let mut records = Vec::new();
    for call in lost.iter().filter(|call| !ended.contains(&call.call_id)) {
        match serde_json::from_str::<Record>(&call.record) {
            Ok(record) => records.push(record),
            Err(error) => warn!(%error, call_id = call.call_id, "What was begun cannot be read any more."),
        }
    }
    let recovered = records.len();
    if !records.is_empty() {
        append(&*write, &last(&*write).await?, records).await?;
    }
    in_flight::Entity::delete_many().filter(in_flight::Column::CallId.is_in(ids)).exec(&*write).await?;
    write.commit().await?;
    Ok((lost.len(), recovered))
}
