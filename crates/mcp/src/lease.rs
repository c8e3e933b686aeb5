//! The lease of a request. It travels through rmcp in `_meta`, and is sent as a header.

use http::{HeaderName, HeaderValue};
use rmcp::model::RequestMetaObject;
use serde_json::{Map, Value};

/// The header that carries the lease of a request.
const HEADER: HeaderName = HeaderName::from_static("cynode-lease");
/// The key in `_meta` under which the lease travels up to the exchange. Never sent.
const META_KEY: &str = "dev.cynode/lease";

/// Returns the `_meta` of a request with its lease.
pub(crate) fn meta(lease: Option<&str>) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    if let Some(lease) = lease {
        meta.0.0.insert(META_KEY.to_owned(), lease.into());
    }
    meta
}

/// Takes the lease out of a `_meta` object, as a header.
pub(crate) fn take(meta: &mut Map<String, Value>) -> Option<(HeaderName, HeaderValue)> {
    let lease = meta.remove(META_KEY)?;
    let mut value = HeaderValue::try_from(lease.as_str()?).ok()?;
    value.set_sensitive(true);
    Some((HEADER, value))
}

/// Takes the lease out of an encoded message. Few messages have one, and the others are not parsed.
pub(crate) fn take_encoded(
    body: &mut Vec<u8>,
) -> Result<Option<(HeaderName, HeaderValue)>, serde_json::Error> {
    let key = META_KEY.as_bytes();
    if !body.windows(key.len()).any(|window| window == key) {
        return Ok(None);
    }
    let mut message: Value = serde_json::from_slice(body)?;
    let meta = message.pointer_mut("/params/_meta").and_then(Value::as_object_mut);
    let Some(header) = meta.and_then(take) else { return Ok(None) };
    *body = serde_json::to_vec(&message)?;
    Ok(Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_a_header_and_not_in_the_body() {
        let mut meta = meta(Some("cyl1.a.b"));
        let message = serde_json::json!({ "params": { "_meta": meta, "arguments": { "a": META_KEY } } });
        let mut body = serde_json::to_vec(&message).unwrap();
        let (name, value) = take_encoded(&mut body).unwrap().unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("cynode-lease", "cyl1.a.b"));
        let rest: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(rest, serde_json::json!({ "params": { "_meta": {}, "arguments": { "a": META_KEY } } }));
        assert_eq!(take_encoded(&mut body).unwrap(), None);
        assert!(take(&mut meta.0.0).is_some() && meta.0.0.is_empty());
    }
}
