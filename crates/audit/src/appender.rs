//! The fast path of the audit: appends rows to a SQLite store over a connection of its own, without sea-orm.
//!
//! Inserts run on the calling thread, because waking another thread takes longer than the insert. Work that
//! has to wait for the disk or for another process runs on a blocking thread. Without an [`Appender`] the
//! writer inserts the same rows through sea-orm. `docs/fast-paths.md` tells what it buys, how to switch it
//! off and which test compares both.

use std::{path::PathBuf, time::Duration};

use rusqlite::{Connection, Error, ErrorCode, OpenFlags, TransactionBehavior, ffi, params};
use subjects::audit::Row;
use tokio::task::spawn_blocking;

use super::write_error::WriteError;
use store::{BUSY_TIMEOUT, Durability, Store};

const INSERT: &str = "INSERT INTO audit (seq, created_at, call_id, agent, subject, user_id, task_id, \
                      project_id, run_id, job_id, tool, decision, status, error_type, duration_us, \
                      arguments_digest, trace_id, lease_id, profile, node, node_line, hash) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

#[derive(Debug)]
pub(super) struct Appender {
    path: PathBuf,
    durability: Durability,
    /// Opened on first use, and again after a failure.
    connection: Option<Connection>,
}

impl Appender {
    /// Returns an appender without opening its connection; `None` if the store is not a SQLite file.
    pub(super) fn for_store(store: &Store) -> Option<Self> {
        let (path, durability) = (store.sqlite_file()?.to_owned(), store.durability());
        Some(Self { path, durability, connection: None })
    }

    /// Commits the rows, all or none. The caller must hold the store's writer guard.
    pub(super) async fn append(&mut self, rows: Vec<Row>) -> Result<(), WriteError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let is_committed = self.durability == Durability::Process && try_commit(&mut connection, &rows)?;
        if !is_committed {
            let commit = move |connection: &mut Connection| {
                connection.busy_timeout(BUSY_TIMEOUT)?;
                commit(connection, &rows)?;
                connection.busy_timeout(Duration::ZERO)
            };
            connection = run_blocking(connection, commit).await?;
        }
        self.connection = Some(connection);
        Ok(())
    }

    fn open(&self) -> Result<Connection, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "synchronous", self.durability.pragma())?;
        // An automatic checkpoint would wait for the disk in the middle of a call. The store's own works
        // beside it.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(connection)
    }
}

/// Runs `work` on a blocking thread. The connection is dropped on failure.
async fn run_blocking(
    mut connection: Connection,
    work: impl FnOnce(&mut Connection) -> Result<(), Error> + Send + 'static,
) -> Result<Connection, WriteError> {
    let done = spawn_blocking(move || work(&mut connection).map(|()| connection)).await;
    Ok(done.map_err(|error| WriteError::Appender(error.into()))??)
}

/// Commits, unless another process holds the lock. Returns whether it did.
fn try_commit(connection: &mut Connection, rows: &[Row]) -> Result<bool, Error> {
    match commit(connection, rows) {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
        committed => committed.map(|()| true),
    }
}

fn commit(connection: &mut Connection, rows: &[Row]) -> Result<(), Error> {
    if let [row] = rows {
        // A single statement is its own transaction.
        return insert(connection, row);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    rows.iter().try_for_each(|row| insert(&transaction, row))?;
    transaction.commit()
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
        row.lease_id,
        row.profile,
        row.node,
        row.node_line,
        row.hash,
    ])?;
    Ok(())
}

impl From<Error> for WriteError {
    fn from(error: Error) -> Self {
        let taken = [ffi::SQLITE_CONSTRAINT_PRIMARYKEY, ffi::SQLITE_CONSTRAINT_UNIQUE];
        match &error {
            Error::SqliteFailure(failure, _) if taken.contains(&failure.extended_code) => Self::SequenceTaken,
            _ => Self::Appender(error.into()),
        }
    }
}

#[cfg(test)]
mod tests;
