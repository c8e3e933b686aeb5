//! Checkpoints the write-ahead log of SQLite beside the writers, so that no commit waits for the disk.

use sea_orm::{ConnectionTrait, DbErr, Statement};
use tokio::select;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Store;

/// So few frames are copied in less than a millisecond, which the writers can wait for.
const FEW_FRAMES: i64 = 64;
/// How often frames are copied that were written in the meantime, before the writers wait for the rest.
const MAX_ROUNDS: usize = 3;

/// Copies the write-ahead log into the database file whenever enough was written.
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
        loop {
            select! {
                () = stop.cancelled() => break,
                () = self.store.commits.wait_until_due() => {}
            }
            if let Err(error) = self.checkpoint().await {
                warn!(%error, "WAL checkpoint failed; retrying after further commits.");
            }
        }
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
        let _writer = self.store.acquire_writer().await;
        self.copy_frames().await.map(drop)
    }

    /// Copies the frames that were written until now. Returns how many frames of the log are copied.
    async fn copy_frames(&self) -> Result<i64, DbErr> {
        let connection = self.store.read();
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        let checkpoint = Statement::from_string(connection.get_database_backend(), checkpoint);
        let row = connection.query_one_raw(checkpoint).await?;
        let row = row.ok_or_else(|| DbErr::RecordNotFound("the result of a checkpoint".to_owned()))?;
        // Whether another checkpoint ran, the frames of the log, and how many of them are copied.
        row.try_get_by_index(2)
    }
}

#[cfg(test)]
mod tests;
