//! Commits the rows of calls that have ended, and the outcomes of their keys.

use std::collections::BTreeSet;

use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter};

use super::{Writer, within_patience};
use store::{Store, clock, entity::in_flight};

use crate::{
    chain::{LastRow, append, chain_rows, last_row, lock_chain},
    keys::settle_key,
    messages::{Announcement, End},
    record::Record,
    recovery::recorded_ids,
    write_error::WriteError,
};

/// A younger call cannot have been recovered as lost: every announcement is valid for longer than this.
const MAY_BE_LOST_AFTER_US: i64 = 25_000_000;

impl Writer {
    /// Writes the rows of calls and the outcomes of their keys. Returns the new last row; `None` if every
    /// call had its row already.
    pub(super) async fn commit_ends(&mut self, group: &[End]) -> Result<Option<LastRow>, WriteError> {
        if self.store.is_postgres() {
            return within_patience(&self.store, end_on_server(&self.store, group)).await;
        }
        let with_keys = group.iter().any(|end| matches!(end.announcement, Announcement::WithKey(_)));
        if with_keys { self.end_with_keys(group).await } else { self.end_without_keys(group).await }
    }

    /// Writes rows with a single statement; announcements are removed later.
    async fn end_without_keys(&mut self, group: &[End]) -> Result<Option<LastRow>, WriteError> {
        let writer = self.store.acquire_writer().await;
        let records = if may_have_rows(group) { without_rows(&*writer, group).await? } else { all(group) };
        let mut now = None;
        if !records.is_empty() {
            let after = match self.last.take() {
                Some(last) => last,
                None => last_row(&*writer).await?,
            };
            now = Some(match &mut self.appender {
                Some(appender) => {
                    let (rows, last) = chain_rows(&after, records);
                    appender.append(rows).await?;
                    last
                }
                None => append(&*writer, &after, records).await?,
            });
        }
        drop(writer);
        // Announcements that are in the table and not in the log.
        let in_table = group.iter().filter_map(End::announced).filter(|id| !self.is_logged(id));
        let in_table: Vec<String> = in_table.map(str::to_owned).collect();
        self.recorded.extend(in_table);
        Ok(now)
    }

    /// Writes rows and the outcomes of keys in one transaction.
    async fn end_with_keys(&mut self, group: &[End]) -> Result<Option<LastRow>, WriteError> {
        let write = self.store.write().await?;
        let announced: Vec<&str> =
            group.iter().filter_map(End::announced).filter(|id| !self.is_logged(id)).collect();
        if !announced.is_empty() {
            remove(&*write, &announced).await?;
        }
        settle_keys(&*write, group).await?;
        let records = if may_have_rows(group) { without_rows(&*write, group).await? } else { all(group) };
        let mut now = None;
        if !records.is_empty() {
            let after = match self.last.take() {
                Some(last) => last,
                None => last_row(&*write).await?,
            };
            now = Some(append(&*write, &after, records).await?);
        }
        write.commit().await?;
        Ok(now)
    }
}

/// Writes rows and outcomes of keys in one transaction under the chain's lock, so no other gateway appends in
/// between.
async fn end_on_server(store: &Store, group: &[End]) -> Result<Option<LastRow>, WriteError> {
    let announced: Vec<&str> = group.iter().filter_map(End::announced).collect();
    let write = store.write().await?;
    lock_chain(&write).await?;
    let removed = if announced.is_empty() { 0 } else { remove(&*write, &announced).await? };
    settle_keys(&*write, group).await?;
    // A call whose announcement is gone has its row: it was recovered as lost, or an earlier attempt was
    // committed.
    let none_recorded = removed == announced.len() as u64 && group.iter().all(|end| !end.was_tried);
    let records = if none_recorded { all(group) } else { without_rows(&*write, group).await? };
    let mut now = None;
    if !records.is_empty() {
        now = Some(append(&*write, &last_row(&*write).await?, records).await?);
    }
    write.commit().await?;
    Ok(now)
}

fn all(group: &[End]) -> Vec<Record> {
    group.iter().map(|end| end.record.clone()).collect()
}

/// Returns whether a call of the group may have its row already: an earlier attempt may have been committed,
/// or the call may have been recovered as lost while this process was suspended. The caller must hold the
/// writer guard.
fn may_have_rows(group: &[End]) -> bool {
    let old = clock::now().saturating_sub(MAY_BE_LOST_AFTER_US);
    group.iter().any(|end| end.was_tried || end.record.created_at < old)
}

/// Returns the records of calls that have no row, each call once.
async fn without_rows(db: &impl ConnectionTrait, group: &[End]) -> Result<Vec<Record>, WriteError> {
    let mut written: BTreeSet<String> = recorded_ids(db, group.iter().map(|end| &end.record)).await?;
    let records = group.iter().map(|end| &end.record);
    Ok(records.filter(|record| written.insert(record.call_id.clone())).cloned().collect())
}

async fn remove(db: &impl ConnectionTrait, announced: &[&str]) -> Result<u64, WriteError> {
    let ids = in_flight::Column::CallId.is_in(announced.iter().copied());
    Ok(in_flight::Entity::delete_many().filter(ids).exec(db).await?.rows_affected)
}

async fn settle_keys(db: &impl ConnectionTrait, group: &[End]) -> Result<(), WriteError> {
    for end in group {
        if let Announcement::WithKey(Some(outcome)) = &end.announcement {
            settle_key(db, outcome, &end.record.call_id).await?;
        }
    }
    Ok(())
}
