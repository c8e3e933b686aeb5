//! Helpers for the tests of the client.

use std::{error::Error as _, path::PathBuf, time::Duration};

use mcp::{Call, Client, Error, Options};
use serde_json::{Map, Value, json};
use testkit::{Answer, Tool};

pub(crate) fn options(url: String) -> Options {
    Options {
        url,
        token_file: None,
        connect_timeout: Duration::from_secs(2),
        call_timeout: Duration::from_secs(20),
        max_result_bytes: 64 * 1024,
        fast_path: true,
        profile: None,
    }
}

pub(crate) fn client(url: String) -> Client {
    Client::new(options(url)).unwrap()
}

pub(crate) fn client_with_token(url: String, file: PathBuf) -> Client {
    Client::new(Options { token_file: Some(file), ..options(url) }).unwrap()
}

pub(crate) fn call(name: &str) -> Call<'_> {
    Call { name, arguments: Map::new(), idempotency_key: None, traceparent: None, lease: None }
}

pub(crate) fn call_with(name: &str, arguments: Value) -> Call<'_> {
    let Value::Object(arguments) = arguments else { panic!("not an object: {arguments}") };
    Call { arguments, ..call(name) }
}

/// Returns a tool without arguments.
pub(crate) fn tool(name: &str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Tool {
    Tool::new(name, "A tool of the test", json!({"type": "object"}), move |_| answer())
}

/// Returns the error with all its sources, as a log shows it.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
