use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use subjects::{Body, Encoding};

/// What a request is about. Nothing is decided by this: it is for the audit of requests that never get to a decision, and
/// it is read by the same rules as the message itself, since a body that could be read in two ways is refused.
#[derive(Debug, Default)]
pub(super) struct Glimpse {
    pub(super) id: Value,
    /// The tool, if this is a call of one.
    pub(super) call: Option<String>,
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

pub(super) fn glimpse(body: &[u8]) -> Result<Glimpse, Unreadable> {
    Body::inspect(Encoding::Json, body).shape().map_err(|error| Unreadable(error.to_string()))?;
    let message: Message<'_> =
        serde_json::from_slice(body).map_err(|_| Unreadable("not a JSON-RPC request".to_owned()))?;
    let call = (message.method.as_deref() == Some("tools/call")).then(|| {
        let name = message.params.and_then(|params| params.name);
        name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    });
    Ok(Glimpse { id: message.id, call })
}
