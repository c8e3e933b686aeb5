//! Appends audit rows to a SQLite store over a connection of its own.
//!
//! Inserts run on the calling thread, because waking another thread takes longer than the insert. Work that
//! has to wait for the disk or for another process runs on a blocking thread.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, TransactionBehavior, params};
use subjects::audit::Row;
use tokio::task::spawn_blocking;

use super::write_error::WriteError;
use store::{BUSY_TIMEOUT, Durability};

const INSERT: &str = "INSERT INTO audit (seq, created_at, call_id, agent, subject, user_id, task_id, \
                      project_id, run_id, job_id, tool, decision, status, error_type, duration_us, \
                      arguments_digest, trace_id, hash) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
/// Rows plus commits after which the write-ahead log is checkpointed: about ten megabytes.
const CHECKPOINT_AFTER: usize = 2_000;

#[derive(Debug)]
pub(super) struct Appender {
    connection: Connection,
    durability: Durability,
    /// Rows plus commits since the last checkpoint.
    since_checkpoint: usize,
}

impl Appender {
    pub(super) fn open(path: &Path, durability: Durability) -> Result<Self, WriteError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "synchronous", durability.pragma())?;
        // An automatic checkpoint would wait for the disk in the middle of a call.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(Self { connection, durability, since_checkpoint: 0 })
    }

    /// Commits the rows, all or none. The caller must hold the store's writer guard. The connection is
    /// dropped on failure.
    pub(super) async fn append(mut self, rows: Vec<Row>) -> Result<Self, WriteError> {
        if self.durability == Durability::Process {
            match self.commit(&rows) {
                Ok(()) => return Ok(self),
                // Another process holds the lock: wait for it on a blocking thread.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.run_blocking(move |this| {
            this.connection.busy_timeout(BUSY_TIMEOUT)?;
            this.commit(&rows)?;
            this.connection.busy_timeout(Duration::ZERO)
        })
        .await
    }

    /// Checkpoints the write-ahead log into the database file, if that is due.
    pub(super) async fn checkpoint(self) -> Result<Self, WriteError> {
        if self.since_checkpoint < CHECKPOINT_AFTER {
            return Ok(self);
        }
        self.run_blocking(|this| {
            this.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            this.since_checkpoint = 0;
            Ok(())
        })
        .await
    }

    async fn run_blocking(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<(), Error> + Send + 'static,
    ) -> Result<Self, WriteError> {
        let done = spawn_blocking(move || work(&mut self).map(|()| self)).await;
        Ok(done.map_err(WriteError::TaskFailed)??)
    }

    fn commit(&mut self, rows: &[Row]) -> Result<(), Error> {
        if let [row] = rows {
            // A single statement is its own transaction.
            insert(&self.connection, row)?;
        } else {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            rows.iter().try_for_each(|row| insert(&transaction, row))?;
            transaction.commit()?;
        }
        self.since_checkpoint += 1 + rows.len();
        Ok(())
    }
}

fn insert(connection: &Connection, row: &Row) -> Result<(), Error> {
    let mut insert = connection.prepare_cached(INSERT)?;
    insert.execute(params![
        row.seq,
        row.created_at,
        row.call_id,
        row.agent,
        row.subject,
        row.user_id,
        row.task_id,
        row.project_id,
        row.run_id,
        row.job_id,
        row.tool,
        row.decision,
        row.status,
        row.error_type,
        row.duration_us,
        row.arguments_digest,
        row.trace_id,
        row.hash,
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests;
