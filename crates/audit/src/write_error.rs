//! Errors of writes to the audit, classified by whether a retry can succeed.

use std::time::Duration;

use sea_orm::{DbErr, RuntimeErr};

use super::chain::is_sequence_taken;

/// Why a write to the audit failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("another writer added a row with this number")]
    SequenceTaken,
    /// The store is available and will never accept this write.
    #[error("the store rejected the write: {0}")]
    Rejected(DbErr),
    #[error(transparent)]
    Store(DbErr),
    /// An error of the appender's own connection.
    #[error(transparent)]
    Appender(Box<dyn std::error::Error + Send + Sync>),
    #[error("the store did not respond within {0:?}")]
    TimedOut(Duration),
}

impl From<DbErr> for WriteError {
    fn from(error: DbErr) -> Self {
        if is_sequence_taken(&error) {
            Self::SequenceTaken
        } else if is_rejected(&error) {
            Self::Rejected(error)
        } else {
            Self::Store(error)
        }
    }
}

/// Returns whether the data cannot be stored or violates a constraint: SQLSTATE classes 22 and 23. Every
/// other error may be temporary.
fn is_rejected(error: &DbErr) -> bool {
    let (DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error))) = error
    else {
        return matches!(error, DbErr::Custom(_) | DbErr::Type(_) | DbErr::Json(_));
    };
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code.len() == 5 && (code.starts_with("22") || code.starts_with("23")))
}
