//! Streamed answers: server-sent events that are passed on as they arrive, without secrets.

use std::{convert::Infallible, io, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use http::StatusCode;
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::{
    select,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::server;
use crate::error::ApiError;

/// Ends a stream of chat completions. Some servers also end other streams with it.
pub(super) const DONE: &str = "[DONE]";
/// Largest event of a model server, like the largest answer that is not streamed.
const MAX_EVENT_BYTES: usize = 16 << 20;
/// A line that clients ignore. It keeps proxies from closing the connection.
const COMMENT: &[u8] = b": waiting for the model\n\n";

/// Passes on the events of one answer.
pub(super) trait Relay: Send + 'static {
    /// Returns what the client gets for one event. `None` for one that cannot be read: the stream ends with
    /// an error, since a part of the answer is missing.
    fn pass(&mut self, event: &Sse) -> Option<Bytes>;

    /// Returns whether the answer is complete, or the server reported why it is not. `is_done` means that the
    /// server said that nothing follows, not only that its connection ended.
    fn is_complete(&self, is_done: bool) -> bool;

    /// Returns the end of a complete answer.
    fn end(&mut self) -> Bytes;

    /// Returns the end of an answer that breaks off.
    fn fail(&mut self, error: &ApiError) -> Bytes;
}

/// Returns the body of a streamed answer. Dropping it ends the request to the model server. It ends with an
/// error when `closing` is cancelled.
pub(super) fn body(
    answer: reqwest::Response,
    relay: impl Relay,
    silence: Duration,
    keep_alive: Duration,
    closing: CancellationToken,
) -> Body {
    let events = SseStream::from_bytes_stream(bounded(answer.bytes_stream(), MAX_EVENT_BYTES)).boxed();
    Body::from_stream(relayed(events, relay, silence, keep_alive, closing))
}

/// Breaks a stream off in an event that is larger than `limit`, which would have to be held in memory.
fn bounded<E: std::error::Error + Send + Sync + 'static>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send,
    limit: usize,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let (mut size, mut is_line_empty, mut last) = (0, true, b'\n');
    pieces.map(move |piece| {
        let piece = piece.map_err(io::Error::other)?;
        for line in piece.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            size += line.len();
            if size > limit {
                return Err(io::Error::other("an event is too large"));
            }
            let is_rest_of_line_end = last == b'\r' && line == b"\n";
            last = line.last().copied().unwrap_or(last);
            if is_rest_of_line_end {
                continue;
            }
            let has_ended = matches!(last, b'\n' | b'\r');
            if has_ended && line.len() == 1 && is_line_empty {
                size = 0;
            }
            is_line_empty = has_ended;
        }
        Ok(piece)
    })
}

type Events = BoxStream<'static, Result<Sse, sse_stream::Error>>;

fn relayed(
    events: Events,
    relay: impl Relay,
    silence: Duration,
    keep_alive: Duration,
    closing: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let state = Some((events, relay, closing, Instant::now()));
    futures_util::stream::unfold(state, move |state| async move {
        let (mut events, mut relay, closing, heard_at) = state?;
        let until = (Instant::now() + keep_alive).min(heard_at + silence);
        let received = select! {
            biased;
            // Cancel-safe: waiting only.
            () = closing.cancelled() => return Some((Ok(relay.fail(&server::stopping())), None)),
            // Cancel-safe: an event that has not arrived stays in the stream.
            received = timeout_at(until, events.next()) => received,
        };
        let (piece, heard_at) = match received {
            Err(_) if Instant::now() >= heard_at + silence => {
                return Some((Ok(relay.fail(&server::silent())), None));
            }
            Err(_) => (Bytes::from_static(COMMENT), heard_at),
            Ok(None | Some(Err(_))) => return Some((Ok(end(&mut relay, false)), None)),
            Ok(Some(Ok(event))) if event.data.as_deref().is_some_and(|data| data.trim() == DONE) => {
                return Some((Ok(end(&mut relay, true)), None));
            }
            Ok(Some(Ok(event))) => match relay.pass(&event) {
                Some(piece) => (piece, Instant::now()),
                None => return Some((Ok(relay.fail(&broken_off())), None)),
            },
        };
        Some((Ok(piece), Some((events, relay, closing, heard_at))))
    })
}

/// Returns the end of a stream. One that breaks off ends with an error: clients take the mere end of a stream
/// for success.
fn end(relay: &mut impl Relay, is_done: bool) -> Bytes {
    if relay.is_complete(is_done) { relay.end() } else { relay.fail(&broken_off()) }
}

fn broken_off() -> ApiError {
    let message =
        "The model server broke off its answer, or a part of it cannot be read; repeat the request.";
    ApiError::new(StatusCode::BAD_GATEWAY, "model_server_error", message)
}

/// Returns whether an event reports an error, as OpenAI's SDKs read its `error`: some servers send `false` or
/// an empty text with every event.
pub(super) fn is_error(error: &Value) -> bool {
    match error {
        Value::Null => false,
        Value::Bool(is_error) => *is_error,
        Value::Number(code) => code.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes bytes in pieces of a size; returns how many pieces came through.
    async fn passed(bytes: &[u8], size: usize) -> Result<usize, String> {
        let pieces = bytes.chunks(size).map(|piece| Ok::<_, io::Error>(Bytes::copy_from_slice(piece)));
        let pieces: Vec<_> = pieces.collect();
        let bounded = bounded(futures_util::stream::iter(pieces), 20);
        let all: Vec<_> = bounded.collect().await;
        let all: io::Result<Vec<Bytes>> = all.into_iter().collect();
        all.map(|all| all.len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn one_event_is_bounded_and_many_are_not() {
        for size in [1, 2, 7, 1000] {
            for end in ["\n\n", "\r\n\r\n", "\r\r"] {
                let events = format!("data: 1234567890{end}").repeat(50);
                assert!(passed(events.as_bytes(), size).await.is_ok(), "{end:?} {size}");
            }
            for endless in
                ["data: 123456789012345", "data: 12345\ndata: 12345\n", ": a\r\n: a\r\n: a\r\n: a\r\n: a\r\n"]
            {
                let refused = passed(endless.as_bytes(), size).await;
                assert_eq!(refused, Err("an event is too large".to_owned()), "{endless:?} {size}");
            }
        }
    }
}
