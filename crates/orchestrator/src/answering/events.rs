//! Server-sent events.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::{BufMut, Bytes, BytesMut};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};

/// Proxies must not collect the events.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Keeps clients and proxies from closing a silent stream.
pub(crate) const COMMENT: Bytes = Bytes::from_static(b": waiting\n\n");
/// Text is sent in pieces of at most this size.
const MAX_PIECE_BYTES: usize = 16 * 1024;

/// Returns a response whose body is server-sent events.
pub(crate) fn event_stream(body: Body) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    (StatusCode::OK, headers, body).into_response()
}

/// Writes an event whose data is one line.
pub(crate) fn event(out: &mut BytesMut, data: &[u8]) {
    out.reserve(data.len() + 8);
    out.put_slice(b"data: ");
    out.put_slice(data);
    out.put_slice(b"\n\n");
}

/// Writes an event with a name.
pub(crate) fn named_event(out: &mut BytesMut, name: &str, data: &[u8]) {
    out.put_slice(b"event: ");
    out.put_slice(name.as_bytes());
    out.put_slice(b"\n");
    event(out, data);
}

/// Cuts a text into pieces that are sent one by one.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_PIECE_BYTES));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_into_pieces_that_add_up() {
        let text = "é\n".repeat(20_000);
        assert!(pieces(&text).count() > 2);
        assert!(pieces(&text).all(|piece| piece.len() <= MAX_PIECE_BYTES));
        assert_eq!(pieces(&text).collect::<String>(), text);
        assert_eq!(pieces("").count(), 0);
    }
}
