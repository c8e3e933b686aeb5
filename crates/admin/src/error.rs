//! The errors of operations, with their code, field and HTTP status.

use http::StatusCode;
use sea_orm::{DbErr, SqlErr};
use tracing::error;

use access::tokens;
use audit::{Unavailable, Unrecorded};
use registry::upstreams;

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what} `{id}` not found")]
    NotFound { what: &'static str, id: String },
    #[error("{field}: {message}")]
    Invalid { field: &'static str, message: String },
    #[error("{0}")]
    Forbidden(String),
    /// The current state does not permit the operation.
    #[error("{0}")]
    Conflict(String),
    /// An upstream, or NATS, did not respond or failed.
    #[error("{0}")]
    Unreachable(String),
    #[error("temporarily unavailable; try again")]
    Unavailable,
    /// The store failed during the commit or the recording. If the change was committed, its audit row is
    /// written when the store is back.
    #[error(
        "the store failed while the change was being committed; check the current state before you try again"
    )]
    Unrecorded,
}

impl Error {
    pub(super) fn not_found(what: &'static str, id: impl Into<String>) -> Self {
        Self::NotFound { what, id: id.into() }
    }

    pub(super) fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { field, message: message.into() }
    }

    /// Returns the stable error code for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Invalid { .. } => "invalid",
            Self::Forbidden(_) => "forbidden",
            Self::Conflict(_) => "conflict",
            Self::Unreachable(_) => "unreachable",
            Self::Unavailable => "unavailable",
            Self::Unrecorded => "unrecorded",
        }
    }

    /// Returns the invalid field, if one is to blame.
    pub(crate) fn field(&self) -> Option<&'static str> {
        match self {
            Self::Invalid { field, .. } => Some(field),
            Self::NotFound { .. }
            | Self::Forbidden(_)
            | Self::Conflict(_)
            | Self::Unreachable(_)
            | Self::Unavailable
            | Self::Unrecorded => None,
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Unreachable(_) => StatusCode::BAD_GATEWAY,
            Self::Unavailable | Self::Unrecorded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<DbErr> for Error {
    fn from(error: DbErr) -> Self {
        if let Some(SqlErr::UniqueConstraintViolation(_)) = error.sql_err() {
            return Self::Conflict("the name is already in use".to_owned());
        }
        error!(%error, "Store not available; admin operations fail.");
        Self::Unavailable
    }
}

impl From<Unavailable> for Error {
    fn from(_: Unavailable) -> Self {
        Self::Unavailable
    }
}

impl From<Unrecorded> for Error {
    fn from(_: Unrecorded) -> Self {
        Self::Unrecorded
    }
}

impl From<tokens::Error> for Error {
    fn from(error: tokens::Error) -> Self {
        match error {
            tokens::Error::Store(error) => error.into(),
            tokens::Error::NoRandomness => {
                error!("Token not created: the system's random generator failed.");
                Self::Unavailable
            }
        }
    }
}

impl From<upstreams::Error> for Error {
    fn from(error: upstreams::Error) -> Self {
        match error {
            upstreams::Error::Unknown(namespace) => Self::not_found("server", namespace),
            upstreams::Error::Unreachable { .. } => Self::Unreachable(error.to_string()),
            upstreams::Error::Store(error) => error.into(),
        }
    }
}
