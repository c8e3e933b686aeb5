use std::collections::BTreeSet;

use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter};

use super::{Writer, within_patience};
use crate::{
    audit::{
        appender::Appender,
        chain::{Last, append, following, last, lock},
        keys::settle,
        not_written::NotWritten,
        notes::{End, WasBegun},
        record::Record,
        recovery::with_rows,
    },
    clock,
    store::{Store, entity::in_flight},
};

/// A call that is younger cannot have been taken for lost: announcements are good for longer.
const MAY_BE_LOST_AFTER_US: i64 = 25_000_000;

impl Writer {
    /// Gives calls their rows and their keys what became of them. `None`: all of them had their rows already.
    pub(super) async fn commit_ends(&mut self, group: &[End]) -> Result<Option<Last>, NotWritten> {
        if self.store.is_postgres() {
            return within_patience(&self.store, end_on_server(&self.store, group)).await;
        }
        let with_keys = group.iter().any(|end| matches!(end.begun, WasBegun::WithKey(_)));
        if with_keys { self.end_with_keys(group).await } else { self.end_plain(group).await }
    }

    /// One statement.
    async fn end_plain(&mut self, group: &[End]) -> Result<Option<Last>, NotWritten> {
        let turn = self.store.turn().await;
        let records = if may_have_rows(group) { without_rows(&*turn, group).await? } else { all(group) };
        let mut now = None;
        if !records.is_empty() {
            let after = match self.last.take() {
                Some(last) => last,
                None => last(&*turn).await?,
            };
            now = Some(match self.store.file() {
                Some(file) => {
                    let appender = match self.appender.take() {
                        Some(appender) => appender,
                        None => Appender::open(file, self.store.durability())?,
                    };
                    let (rows, last) = following(&after, records);
                    self.appender = Some(appender.add(rows).await?);
                    last
                }
                None => append(&*turn, &after, records).await?,
            });
        }
        drop(turn);
        let in_table = group.iter().filter_map(End::announced).filter(|id| !self.is_logged(id));
        let in_table: Vec<String> = in_table.map(str::to_owned).collect();
        self.ended.extend(in_table);
        Ok(now)
    }

    /// A key gets its answer together with the call's row.
    async fn end_with_keys(&mut self, group: &[End]) -> Result<Option<Last>, NotWritten> {
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
                None => last(&*write).await?,
            };
            now = Some(append(&*write, &after, records).await?);
        }
        write.commit().await?;
        Ok(now)
    }
}

/// One transaction under the lock of the chain, so no other gateway adds a row in between.
async fn end_on_server(store: &Store, group: &[End]) -> Result<Option<Last>, NotWritten> {
    let announced: Vec<&str> = group.iter().filter_map(End::announced).collect();
    let write = store.write().await?;
    lock(&write).await?;
    let gone = if announced.is_empty() { 0 } else { remove(&*write, &announced).await? };
    settle_keys(&*write, group).await?;
    // One that is not in flight any more was taken for lost and has its row, or we wrote it before.
    let is_sure = gone == announced.len() as u64 && group.iter().all(|end| !end.was_tried);
    let records = if is_sure { all(group) } else { without_rows(&*write, group).await? };
    let mut now = None;
    if !records.is_empty() {
        now = Some(append(&*write, &last(&*write).await?, records).await?);
    }
    write.commit().await?;
    Ok(now)
}

fn all(group: &[End]) -> Vec<Record> {
    group.iter().map(|end| end.record.clone()).collect()
}

/// Whether some may have their row already: an attempt may have succeeded, or the call may have been taken for lost while
/// this process stood still. Asked while nothing else can write.
fn may_have_rows(group: &[End]) -> bool {
    let old = clock::now().saturating_sub(MAY_BE_LOST_AFTER_US);
    group.iter().any(|end| end.was_tried || end.record.created_at < old)
}

async fn without_rows(db: &impl ConnectionTrait, group: &[End]) -> Result<Vec<Record>, NotWritten> {
    let written: BTreeSet<String> = with_rows(db, group.iter().map(|end| &end.record)).await?;
    let records = group.iter().map(|end| &end.record);
    Ok(records.filter(|record| !written.contains(&record.call_id)).cloned().collect())
}

async fn remove(db: &impl ConnectionTrait, announced: &[&str]) -> Result<u64, NotWritten> {
    let ids = in_flight::Column::CallId.is_in(announced.iter().copied());
    Ok(in_flight::Entity::delete_many().filter(ids).exec(db).await?.rows_affected)
}

async fn settle_keys(db: &impl ConnectionTrait, group: &[End]) -> Result<(), NotWritten> {
    for end in group {
        if let WasBegun::WithKey(Some(finish)) = &end.begun {
            settle(db, finish, &end.record.call_id).await?;
        }
    }
    Ok(())
}
