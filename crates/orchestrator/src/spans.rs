//! Spans of requests, following the OpenTelemetry conventions for HTTP servers. They contain names and
//! numbers only. Without a collector no span is created.

use axum::extract::Request;
use telemetry::{TRACES, mark_failed, set_attribute, set_remote_parent};
use tracing::{Span, info_span};

pub(crate) const TRACEPARENT: &str = "traceparent";

/// Creates the span of a request. Its trace goes on from that of the client.
pub(crate) fn request(request: &Request) -> Span {
    let route = route(request.uri().path());
    let method = request.method().as_str();
    let span = info_span!(
        target: TRACES,
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        http.request.method = method,
        http.route = route,
    );
    if let Some(parent) = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()) {
        set_remote_parent(&span, parent);
    }
    span
}

/// Returns a path without its ids, so that there are few different ones.
fn route(path: &str) -> String {
    const WORDS: [&str; 11] = [
        "",
        "v1",
        "models",
        "chat",
        "completions",
        "responses",
        "input_items",
        "threads",
        "messages",
        "export",
        "cancel",
    ];
    let is_known = |word: &&str| WORDS.contains(word);
    let words = path.split('/').map(|word| if is_known(&word) { word } else { "{id}" });
    words.collect::<Vec<&str>>().join("/")
}

/// Records how the request was answered. Of a stream this is its beginning.
pub(crate) fn record_status(span: &Span, status: u16) {
    set_attribute(span, "http.response.status_code", i64::from(status));
    if status >= 500 {
        mark_failed(span, "server_error");
    }
}
