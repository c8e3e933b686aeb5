//! How to reach an upstream, and its limits.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// The allowed size of a message per allowed byte of a result. A server that writes ASCII-only JSON needs six
/// bytes for a character of two bytes.
const MESSAGE_BYTES_PER_RESULT_BYTE: usize = 3;
/// Enough for one page of the list of tools.
const MIN_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// How an upstream is reached.
#[derive(Clone, Debug)]
pub enum Transport {
    Http {
        url: String,
        /// The file that contains the upstream's bearer token. Without it, requests carry no token.
        token_file: Option<PathBuf>,
        /// Restricts the addresses to connect to. `None` allows all.
        addresses: Option<mcp::AddressFilter>,
    },
    /// A program that speaks MCP on its standard input and output.
    Stdio {
        /// The program and its arguments. Not interpreted by a shell.
        argv: Vec<String>,
        /// Added to the few inherited variables.
        env: BTreeMap<String, String>,
        /// Like `env`, but each value is read from a file when the program starts.
        secret_env: BTreeMap<String, PathBuf>,
        folder: Option<PathBuf>,
    },
}

/// After this many consecutive `failures` the breaker opens for `open_for`; then one call probes the
/// upstream. With zero failures it never opens.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    pub failures: u32,
    pub open_for: Duration,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// The name in logs.
    pub name: String,
    pub transport: Transport,
    /// The time limit for connecting, from the first packet or the start of the program to the end of the
    /// handshake.
    pub connect_timeout: Duration,
    /// The time limit for one call or one listing, including connecting. A call may wait for a slot for the
    /// same time before that, so that it is never sent with little time left.
    pub call_timeout: Duration,
    /// The maximum number of concurrent calls.
    pub concurrency: usize,
    /// The maximum size of a result, serialized as JSON.
    pub max_result_bytes: usize,
    /// Whether tools are called over HTTP without rmcp's client where that is possible.
    pub fast_path: bool,
    pub breaker: Breaker,
}

impl Options {
    pub(crate) fn max_message(&self) -> usize {
        self.max_result_bytes.saturating_mul(MESSAGE_BYTES_PER_RESULT_BYTE).max(MIN_MESSAGE_BYTES)
    }
}
