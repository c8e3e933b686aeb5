//! Checkpoints the write-ahead log of SQLite concurrently with the writers, so that no commit waits for the
//! disk, and truncates it, so that it keeps nothing that was deleted.

use std::time::Duration;

use sea_orm::{ConnectionTrait, DatabaseConnection, DbErr, Statement};
use tokio::{
    select,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{BUSY_TIMEOUT, Store};

/// So few frames are copied in less than a millisecond, which the writers can wait for.
const FEW_FRAMES: i64 = 64;
/// How often frames are copied that were written in the meantime, before the writers wait for the rest.
const MAX_ROUNDS: usize = 3;

/// How often the log is emptied, if anything was written. SQLite begins it anew without erasing the rest,
/// which has the rows as they were before they were deleted.
const EMPTY_EVERY: Duration = Duration::from_secs(10);

/// Copies the write-ahead log into the database file whenever enough was written, and empties it now and
/// then.
///
/// SQLite's own checkpoints run inside the commit that makes the log too long, and all other writers wait for
/// it. They stay as the last resort, with a longer log.
#[derive(Debug)]
pub struct Checkpointer {
    store: Store,
}

impl Checkpointer {
    /// Returns `None` if the store is not a SQLite file.
    pub fn for_store(store: &Store) -> Option<Self> {
        store.sqlite_file()?;
        Some(Self { store: store.clone() })
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let mut ticks = interval(EMPTY_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = select! {
                () = stop.cancelled() => break,
                () = self.store.commits.wait_until_due() => self.checkpoint().await,
                _ = ticks.tick() => self.empty().await,
            };
            if let Err(error) = done {
                warn!(%error, "WAL checkpoint failed; retrying.");
            }
        }
    }

    /// Empties the log, unless nothing was written or a reader uses it: then it is tried again.
    async fn empty(&self) -> Result<(), DbErr> {
        if !self.store.commits.has_any_since_emptied() {
            return Ok(());
        }
        self.copy_frames().await?;
        let writer = self.store.acquire_writer().await.without_commit();
        // Writers wait for no reader.
        set_busy_timeout(&writer, Duration::ZERO).await?;
        let emptied = checkpoint(&writer, "TRUNCATE").await;
        set_busy_timeout(&writer, BUSY_TIMEOUT).await?;
        if !emptied?.is_busy {
            self.store.commits.set_emptied();
        }
        Ok(())
    }

    /// Copies what the log has, so that the next writer begins it anew, unless a reader still uses it.
    async fn checkpoint(&self) -> Result<(), DbErr> {
        let mut copied = self.copy_frames().await?;
        for _ in 0..MAX_ROUNDS {
            let before = copied;
            copied = self.copy_frames().await?;
            if copied - before <= FEW_FRAMES {
                break;
            }
        }
        // SQLite begins the log anew only if nothing was written since all of it was copied.
        let _writer = self.store.acquire_writer().await.without_commit();
        self.copy_frames().await.map(drop)
    }

    /// Copies the frames that were written until now. Returns how many frames of the log are copied.
    async fn copy_frames(&self) -> Result<i64, DbErr> {
        Ok(checkpoint(self.store.read(), "PASSIVE").await?.copied)
    }
}

/// The result of a checkpoint.
struct Checkpoint {
    /// A reader, or another process, kept it from doing all.
    is_busy: bool,
    /// Frames of the log that are in the database file.
    copied: i64,
}

async fn checkpoint(connection: &DatabaseConnection, mode: &str) -> Result<Checkpoint, DbErr> {
    let pragma = format!("PRAGMA wal_checkpoint({mode})");
    let pragma = Statement::from_string(connection.get_database_backend(), pragma);
    let row = connection.query_one_raw(pragma).await?;
    let row = row.ok_or_else(|| DbErr::RecordNotFound("the result of a checkpoint".to_owned()))?;
    let is_busy: i64 = row.try_get_by_index(0)?;
    // The frames of the log are between the two.
    Ok(Checkpoint { is_busy: is_busy != 0, copied: row.try_get_by_index(2)? })
}

async fn set_busy_timeout(connection: &DatabaseConnection, timeout: Duration) -> Result<(), DbErr> {
    connection.execute_unprepared(&format!("PRAGMA busy_timeout = {}", timeout.as_millis())).await.map(drop)
}

#[cfg(test)]
mod tests;
