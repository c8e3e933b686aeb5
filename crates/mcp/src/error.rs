//! The errors of the client.

use std::{io, path::PathBuf};

/// The maximum number of characters of a server's text in an error.
const MAX_SANITIZED_CHARS: usize = 300;

type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// HTTP 401: the server rejected the token.
    #[error("the MCP server rejected the token: {0}")]
    Unauthorized(String),
    /// The server rejected the request: a JSON-RPC error, or HTTP 403 or 413.
    #[error("the MCP server rejected the request: {message}")]
    Rejected {
        /// The code of the JSON-RPC error, or the HTTP status.
        code: Option<i64>,
        message: String,
    },
    #[error("the MCP server did not respond in time")]
    TimedOut,
    #[error("the MCP server is not available")]
    Unavailable(#[source] Source),
    #[error("the server at this address violates the MCP protocol")]
    Protocol(#[source] Source),
    #[error("reading the token from {}", .0.display())]
    Token(PathBuf, #[source] io::Error),
    #[error("setting up the client for the tool server")]
    Options(#[source] Source),
}

impl Error {
    /// Returns whether the same call may succeed later without any change by the caller.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::TimedOut | Self::Unavailable(_) => true,
            // The call itself was not at fault, and the file can be restored while the process runs.
            Self::Token(..) => true,
            Self::Unauthorized(_) | Self::Rejected { .. } | Self::Protocol(_) | Self::Options(_) => false,
        }
    }
}

/// Makes a server's text safe for logs and errors: removes control characters and truncates it to 300
/// characters.
pub fn sanitize(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_SANITIZED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_is_truncated_and_contains_no_control_characters() {
        let text = sanitize(&format!("\u{1b}[2Jno\r\n{}", "x".repeat(400)));
        assert!(text.starts_with("[2Jnoxx"), "{text}");
        assert_eq!(text.chars().count(), MAX_SANITIZED_CHARS);
    }
}
