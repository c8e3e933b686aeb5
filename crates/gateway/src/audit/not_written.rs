use std::time::Duration;

use rusqlite::{ErrorCode, ffi};
use sea_orm::{DbErr, RuntimeErr};
use tokio::task::JoinError;

use super::chain::was_too_late;

/// Why the audit did not take something.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    #[error("another writer added a row with this number")]
    TooLate,
    /// The store works, and will never take this.
    #[error("the store rejected the write: {0}")]
    Refused(DbErr),
    #[error(transparent)]
    Store(DbErr),
    #[error(transparent)]
    File(rusqlite::Error),
    #[error("the writer stopped")]
    Ended(#[source] JoinError),
    #[error("the store did not respond within {0:?}")]
    TimedOut(Duration),
}

impl From<DbErr> for NotWritten {
    fn from(error: DbErr) -> Self {
        if was_too_late(&error) {
            Self::TooLate
        } else if is_refused(&error) {
            Self::Refused(error)
        } else {
            Self::Store(error)
        }
    }
}

/// Data that cannot be stored, or breaks a constraint: SQLSTATE classes 22 and 23. Everything else may pass.
fn is_refused(error: &DbErr) -> bool {
    let (DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error))) = error
    else {
        return matches!(error, DbErr::Custom(_) | DbErr::Type(_) | DbErr::Json(_));
    };
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.len() == 5 && (code.starts_with("22") || code.starts_with("23")))
}

impl From<rusqlite::Error> for NotWritten {
    fn from(error: rusqlite::Error) -> Self {
        let taken = [ffi::SQLITE_CONSTRAINT_PRIMARYKEY, ffi::SQLITE_CONSTRAINT_UNIQUE];
        match &error {
            rusqlite::Error::SqliteFailure(failure, _)
                if failure.code == ErrorCode::ConstraintViolation
                    && taken.contains(&failure.extended_code) =>
            {
                Self::TooLate
            }
            _ => Self::File(error),
        }
    }
}
