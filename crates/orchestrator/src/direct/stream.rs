//! Streamed answers: server-sent events that are passed on as they arrive, without secrets.

use std::{
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

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
/// How long more is waited for after a complete answer.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(5);
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
    let heard = Heard::default();
    let pieces = bounded(answer.bytes_stream(), MAX_EVENT_BYTES, heard.clone());
    let events = SseStream::from_bytes_stream(pieces).boxed();
    Body::from_stream(relayed(events, heard, relay, silence, keep_alive, closing))
}

/// When the model server was last heard of. A comment counts: some servers send them while a model is loaded
/// or thinks.
#[derive(Clone, Debug)]
struct Heard(Arc<Mutex<Instant>>);

impl Default for Heard {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Heard {
    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn at(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Breaks a stream off in an event that is larger than `limit`, which would have to be held in memory.
fn bounded<E: std::error::Error + Send + Sync + 'static>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send,
    limit: usize,
    heard: Heard,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let (mut size, mut is_line_empty, mut last) = (0, true, b'\n');
    pieces.map(move |piece| {
        let piece = piece.map_err(io::Error::other)?;
        heard.note();
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
    heard: Heard,
    relay: impl Relay,
    silence: Duration,
    keep_alive: Duration,
    closing: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let state = Some((events, heard, relay, closing));
    futures_util::stream::unfold(state, move |state| async move {
        let (mut events, heard, mut relay, closing) = state?;
        let comment_at = Instant::now() + keep_alive;
        // Nothing but usage may follow a complete answer, and some servers leave the connection open.
        let silence = if relay.is_complete(false) { silence.min(TRAILER_TIMEOUT) } else { silence };
        let received = loop {
            let until = comment_at.min(heard.at() + silence);
            let received = select! {
                biased;
                // Cancel-safe: waiting only.
                () = closing.cancelled() => return Some((Ok(relay.fail(&server::stopping())), None)),
                // Cancel-safe: an event that has not arrived stays in the stream.
                received = timeout_at(until, events.next()) => received,
            };
            // The server may have been heard of meanwhile, without an event.
            if received.is_ok() || Instant::now() >= comment_at.min(heard.at() + silence) {
                break received;
            }
        };
        let piece = match received {
            Err(_) if Instant::now() >= heard.at() + silence && relay.is_complete(false) => {
                return Some((Ok(relay.end()), None));
            }
            Err(_) if Instant::now() >= heard.at() + silence => {
                return Some((Ok(relay.fail(&server::silent())), None));
            }
            Err(_) => Bytes::from_static(COMMENT),
            Ok(None | Some(Err(_))) => return Some((Ok(end(&mut relay, false)), None)),
            Ok(Some(Ok(event))) if event.data.as_deref().is_some_and(|data| data.trim() == DONE) => {
                return Some((Ok(end(&mut relay, true)), None));
            }
            Ok(Some(Ok(event))) => match relay.pass(&event) {
                Some(piece) => piece,
                None => return Some((Ok(relay.fail(&broken_off())), None)),
            },
        };
        Some((Ok(piece), Some((events, heard, relay, closing))))
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
    use tokio::time::sleep;

    use super::*;

    #[derive(Default)]
    struct Echo {
        is_complete: bool,
    }

    impl Relay for Echo {
        fn pass(&mut self, event: &Sse) -> Option<Bytes> {
            let data = event.data.clone().unwrap_or_default();
            self.is_complete |= data == "complete";
            Some(Bytes::from(data))
        }

        fn is_complete(&self, is_done: bool) -> bool {
            is_done || self.is_complete
        }

        fn end(&mut self) -> Bytes {
            Bytes::from_static(b" done")
        }

        fn fail(&mut self, error: &ApiError) -> Bytes {
            Bytes::from(format!(" {}", String::from_utf8_lossy(&error.to_json())))
        }
    }

    /// Relays pieces that arrive 200 ms after one another, with a silence of at most 300 ms.
    async fn relay(pieces: &'static [&'static str]) -> String {
        let pieces = futures_util::stream::unfold(pieces, |left| async move {
            let (first, left) = left.split_first()?;
            sleep(Duration::from_millis(200)).await;
            Some((Ok::<_, io::Error>(Bytes::from_static(first.as_bytes())), left))
        });
        let pieces = pieces.chain(futures_util::stream::pending());
        let heard = Heard::default();
        let events = SseStream::from_bytes_stream(bounded(pieces, 1000, heard.clone())).boxed();
        let (silence, keep_alive) = (Duration::from_millis(300), Duration::from_secs(60));
        let relayed = relayed(events, heard, Echo::default(), silence, keep_alive, CancellationToken::new());
        let out: Vec<_> = relayed.map(|piece| piece.unwrap_or_default()).collect().await;
        String::from_utf8(out.concat()).unwrap()
    }

    /// A router sends comments while a model is loaded.
    #[tokio::test(start_paused = true)]
    async fn comments_of_the_server_end_its_silence() {
        const LOADING: &[&str] =
            &[": loading\n\n", ": loading\n\n", ": loading\n\n", "data: hi\n\n", "data: [DONE]\n\n"];
        assert_eq!(relay(LOADING).await, "hi done");
        let left_open: &[&str] = &["data: hi\n\n", "data: complete\n\n"];
        assert_eq!(relay(left_open).await, "hicomplete done");
        let silent = relay(&[": loading\n\n", "data: hi\n\n"]).await;
        assert!(silent.starts_with("hi ") && silent.contains("model_server_silent"), "{silent}");
    }

    /// Passes bytes in pieces of a size; returns how many pieces came through.
    async fn passed(bytes: &[u8], size: usize) -> Result<usize, String> {
        let pieces = bytes.chunks(size).map(|piece| Ok::<_, io::Error>(Bytes::copy_from_slice(piece)));
        let pieces: Vec<_> = pieces.collect();
        let bounded = bounded(futures_util::stream::iter(pieces), 20, Heard::default());
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
