//! Reads the id and the tool of a request before it is authenticated. Never used for a decision.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use subjects::{Body, Encoding};

/// The id and the tool of a request, for the answer to and the audit of requests that are refused before a
/// decision.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    pub(super) id: Value,
    /// The name of the tool, if the request is a tool call.
    pub(super) tool: Option<String>,
}

#[derive(Deserialize)]
struct Message<'m> {
    #[serde(default)]
    id: Value,
    #[serde(borrow)]
    method: Option<Cow<'m, str>>,
    #[serde(default)]
    params: Option<Params>,
}

#[derive(Deserialize)]
struct Params {
    #[serde(default)]
    name: Option<Value>,
}

/// Why a body cannot be read.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

/// Parses the envelope of a request. Refuses a body that two parsers could read differently, such as one with
/// duplicate keys.
pub(super) fn peek(body: &[u8]) -> Result<Envelope, Unreadable> {
    Body::inspect(Encoding::Json, body).shape().map_err(|error| Unreadable(error.to_string()))?;
    let message: Message<'_> =
        serde_json::from_slice(body).map_err(|_| Unreadable("not a JSON-RPC request".to_owned()))?;
    let tool = (message.method.as_deref() == Some("tools/call")).then(|| {
        let name = message.params.and_then(|params| params.name);
        name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    });
    Ok(Envelope { id: message.id, tool })
}
