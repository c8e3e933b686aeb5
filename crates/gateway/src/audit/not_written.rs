use rusqlite::{ErrorCode, ffi};
use sea_orm::DbErr;
use tokio::task::JoinError;

use super::chain::was_too_late;

/// Why the audit did not take something.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWritten {
    #[error("somebody else added a row where we wanted to")]
    TooLate,
    #[error(transparent)]
    Store(DbErr),
    #[error(transparent)]
    File(rusqlite::Error),
    #[error("writing was ended")]
    Ended(#[source] JoinError),
}

impl From<DbErr> for NotWritten {
    fn from(error: DbErr) -> Self {
        if was_too_late(&error) { Self::TooLate } else { Self::Store(error) }
    }
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
