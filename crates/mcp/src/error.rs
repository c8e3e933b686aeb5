use std::{io, path::PathBuf};

/// How much of a server's own words goes into our errors.
const MAX_TOLD: usize = 300;

type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// HTTP 401: the server does not accept our token, whatever the call.
    #[error("the MCP server rejected the token: {0}")]
    Unauthorized(String),
    /// The server understood and said no: a JSON-RPC error, HTTP 403, or a result marked as a rejection.
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
    /// Whether the same call may succeed later, with nothing changed on our side.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::TimedOut | Self::Unavailable(_) => true,
            // Nothing was wrong with the call, and whoever mounts the file can put it back while we run.
            Self::Token(..) => true,
            Self::Unauthorized(_) | Self::Rejected { .. } | Self::Protocol(_) | Self::Options(_) => false,
        }
    }
}

/// A server's words: short, on one line, and nothing in them that a terminal would act on.
pub fn told(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_TOLD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_cut_and_cannot_move_the_cursor() {
        let text = told(&format!("\u{1b}[2Jno\r\n{}", "x".repeat(400)));
        assert!(text.starts_with("[2Jnoxx"), "{text}");
        assert_eq!(text.chars().count(), MAX_TOLD);
    }
}
