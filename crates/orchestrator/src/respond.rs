//! Responses with JSON bodies.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde::Serialize;

/// Returns a response with a JSON body.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let body = Body::from(subjects::encode_json(body));
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}
