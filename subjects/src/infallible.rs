//! JSON of our own types, which always serialize.

use std::any::type_name;

use serde::Serialize;
use tracing::error;

/// Encodes a value of one of our own types, which have string keys only and therefore always serialize.
///
/// Should one not, that is a defect: tests panic, and a release build logs it and returns no bytes, which
/// every reader refuses.
pub fn encode_json<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| report_broken_invariant::<T, _>(&error))
}

/// Like [`encode_json`], as text.
pub fn encode_json_text<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| report_broken_invariant::<T, _>(&error))
}

fn report_broken_invariant<T: ?Sized, Body: Default>(error: &serde_json::Error) -> Body {
    let value = type_name::<T>();
    error!(value, %error, "Broken invariant: value of our own cannot be encoded as JSON.");
    debug_assert!(false, "{value} cannot be encoded as JSON: {error}");
    Body::default()
}
