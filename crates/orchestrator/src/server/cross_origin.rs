//! Requests of web pages from other origins (CORS). None are permitted unless `api.origins` lists them.

use axum::{
    extract::Request,
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
    },
};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE");
/// Those of OpenAI's SDKs are many and change; the key is in none of them but `authorization`.
const HEADERS: HeaderValue = HeaderValue::from_static("*, authorization");
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-request-id, x-cynode-thread, x-cynode-handoff, retry-after, retry-after-ms, x-should-retry, \
     x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests",
);

/// Returns the origin of a request, if it may call.
pub(super) fn permitted(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    origins.iter().any(|known| known.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

pub(super) fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

pub(super) fn preflight() -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

pub(super) fn permit(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("origin"));
}
