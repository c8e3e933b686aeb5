//! Adds rows to a store that is a file, by a connection that it keeps and on the thread that asks: to wake another one for
//! it takes longer than to do it. What has to wait for the disk or for another process waits elsewhere.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, TransactionBehavior, params};
use subjects::audit::Row;
use tokio::task::spawn_blocking;

use super::not_written::NotWritten;
use crate::store::{BUSY_TIMEOUT, Durability};

const INSERT: &str = "INSERT INTO audit (seq, created_at, call_id, agent, subject, user_id, task_id, project_id, \
                      run_id, job_id, tool, decision, status, error_type, duration_us, arguments_digest, trace_id, \
                      hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
/// Rows and commits, after which the log is moved into the file: some ten megabytes.
const TIDY_AT: usize = 2_000;

#[derive(Debug)]
pub(super) struct Appender {
    connection: Connection,
    durability: Durability,
    /// Rows and commits since the log was moved into the file.
    untidied: usize,
}

impl Appender {
    pub(super) fn open(path: &Path, durability: Durability) -> Result<Self, NotWritten> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "synchronous", durability.pragma())?;
        // It would wait for the disk in the middle of a call.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(Self { connection, durability, untidied: 0 })
    }

    /// Commits the rows, all or none. Whoever calls has the turn of the one writer. On failure the connection is gone.
    pub(super) async fn add(mut self, rows: Vec<Row>) -> Result<Self, NotWritten> {
        if self.durability == Durability::Process {
            match self.commit(&rows) {
                Ok(()) => return Ok(self),
                // Another process has the file.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.elsewhere(move |this| {
            this.connection.busy_timeout(BUSY_TIMEOUT)?;
            this.commit(&rows)?;
            this.connection.busy_timeout(Duration::ZERO)
        })
        .await
    }

    /// Moves the log into the file, if that is due.
    pub(super) async fn tidy(self) -> Result<Self, NotWritten> {
        if self.untidied < TIDY_AT {
            return Ok(self);
        }
        self.elsewhere(|this| {
            this.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
            this.untidied = 0;
            Ok(())
        })
        .await
    }

    async fn elsewhere(
        mut self,
        work: impl FnOnce(&mut Self) -> Result<(), Error> + Send + 'static,
    ) -> Result<Self, NotWritten> {
        let done = spawn_blocking(move || work(&mut self).map(|()| self)).await;
        Ok(done.map_err(NotWritten::Ended)??)
    }

    fn commit(&mut self, rows: &[Row]) -> Result<(), Error> {
        if let [row] = rows {
            // A statement by itself is a transaction.
            insert(&self.connection, row)?;
        } else {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            rows.iter().try_for_each(|row| insert(&transaction, row))?;
            transaction.commit()?;
        }
        self.untidied += 1 + rows.len();
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
