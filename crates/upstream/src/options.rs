use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// What a message may have on the wire for each byte that a result may have: servers that write ASCII only take six
/// bytes for a letter of two.
const MESSAGE_PER_RESULT: usize = 3;
/// Room for one page of the list of tools.
const MIN_MESSAGE: usize = 4 * 1024 * 1024;

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Transport {
    Http {
        url: String,
        /// The file that holds the server's bearer token; without one we call without.
        token_file: Option<PathBuf>,
        /// Where it may be; anywhere when not given.
        addresses: Option<mcp::AddressFilter>,
    },
    /// A program that speaks MCP on its standard input and output.
    Stdio {
        /// The program and its arguments. No shell reads them.
        argv: Vec<String>,
        /// Added to the few variables that a program cannot do without.
        env: BTreeMap<String, String>,
        /// As `env`, but each value is what a file holds when the program is started.
        secret_env: BTreeMap<String, PathBuf>,
        folder: Option<PathBuf>,
    },
}

/// After `failures` in a row the server is left alone for `open_for`; then one call finds out how it is. Zero failures
/// means never.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    pub failures: u32,
    pub open_for: Duration,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// By which logs tell it from others.
    pub name: String,
    pub transport: Transport,
    /// How long a connection may take, from the first packet or the start of the program to the end of the handshake.
    pub connect_timeout: Duration,
    /// How long one call or one listing may take, with waiting for a connection; and how long a call waits for its turn
    /// before that, so that none is sent with no time left.
    pub call_timeout: Duration,
    /// How many calls run at a time.
    pub concurrency: usize,
    /// How large a result may be, written as JSON.
    pub max_result_bytes: usize,
    pub breaker: Breaker,
}

impl Options {
    pub(crate) fn max_message(&self) -> usize {
        self.max_result_bytes.saturating_mul(MESSAGE_PER_RESULT).max(MIN_MESSAGE)
    }
}
