//! The errors of an upstream, and the fate of a failed call.

use std::{error::Error as _, fmt, io, path::PathBuf, sync::Arc};

use mcp::{Fate, sanitize};

/// An error of an upstream. Its text is short, on one line and free of credentials, so it may be shown to
/// users.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("invalid upstream configuration: {0}")]
    Options(String),
    #[error("reading the secret in {}", .0.display())]
    Secret(PathBuf, #[source] Arc<io::Error>),
    #[error("the upstream is not available: {0}")]
    Unavailable(String),
    #[error("the upstream did not respond in time")]
    TimedOut,
    #[error("too many concurrent calls to the upstream")]
    Busy,
    #[error("the upstream's circuit breaker is open after repeated failures")]
    BreakerOpen,
    #[error("the upstream rejected the request: {message}")]
    Rejected {
        /// The code of the JSON-RPC error, or the HTTP status.
        code: Option<i64>,
        message: String,
    },
    #[error("the upstream violates the MCP protocol: {0}")]
    Protocol(String),
    #[error("the tool requests input from the user, which this gateway does not support")]
    InputRequired,
    #[error("the result has more than {0} bytes")]
    TooLarge(usize),
    #[error("the upstream is closed")]
    Closed,
}

/// A call that returned no result.
#[derive(Clone, Debug)]
pub struct Failure {
    pub error: Error,
    pub fate: Fate,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl Failure {
    pub(crate) fn not_run(error: Error) -> Self {
        Self { error, fate: Fate::NotRun }
    }

    pub(crate) fn answered(error: Error) -> Self {
        Self { error, fate: Fate::Answered }
    }

    /// Returns whether the failure counts for the circuit breaker. Answers of the upstream do not, nor do
    /// calls that were never sent.
    pub(crate) fn counts_against_upstream(&self) -> bool {
        match self.error {
            Error::Options(_) | Error::Secret(..) | Error::Busy | Error::BreakerOpen | Error::Closed => false,
            Error::Unavailable(_)
            | Error::TimedOut
            | Error::Rejected { .. }
            | Error::Protocol(_)
            | Error::InputRequired
            | Error::TooLarge(_) => self.fate != Fate::Answered,
        }
    }
}

impl Error {
    /// Converts an error of the MCP client. `mask` replaces secrets in its text.
    pub(crate) fn from_mcp(error: mcp::Error, mask: impl Fn(String) -> String) -> Self {
        match error {
            mcp::Error::Rejected { code, message } => Self::Rejected { code, message: mask(message) },
            mcp::Error::Unauthorized(message) => Self::Rejected { code: Some(401), message: mask(message) },
            mcp::Error::TimedOut => Self::TimedOut,
            mcp::Error::Unavailable(source) => Self::Unavailable(mask(chain(source.as_ref()))),
            mcp::Error::Protocol(source) => Self::Protocol(mask(chain(source.as_ref()))),
            mcp::Error::Token(path, error) => Self::Secret(path, Arc::new(error)),
            mcp::Error::Options(source) => Self::Options(mask(chain(source.as_ref()))),
        }
    }

    /// Returns the error together with its source, for health and logs.
    pub(crate) fn describe(&self) -> String {
        match self.source() {
            Some(source) => format!("{self}: {source}"),
            None => self.to_string(),
        }
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    sanitize(&text)
}
