//! Streamed answers: server-sent events that are passed on as they arrive, without secrets.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use http::StatusCode;
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
/// A line that clients ignore. It keeps proxies from closing the connection.
const COMMENT: &[u8] = b": waiting for the model\n\n";

/// Passes on the events of one answer.
pub(super) trait Relay: Send + 'static {
    /// Returns what the client gets for one event.
    fn pass(&mut self, event: &Sse) -> Bytes;

    /// Returns whether the answer is complete, or the server reported why it is not.
    fn is_complete(&self) -> bool;

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
    let events = SseStream::from_bytes_stream(answer.bytes_stream()).boxed();
    Body::from_stream(relayed(events, relay, silence, keep_alive, closing))
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
            Ok(None | Some(Err(_))) => return Some((Ok(end(&mut relay)), None)),
            Ok(Some(Ok(event))) if event.data.as_deref() == Some(DONE) => {
                return Some((Ok(end(&mut relay)), None));
            }
            Ok(Some(Ok(event))) => (relay.pass(&event), Instant::now()),
        };
        Some((Ok(piece), Some((events, relay, closing, heard_at))))
    })
}

/// Returns the end of a stream. One that breaks off ends with an error: clients take the mere end of a stream
/// for success.
fn end(relay: &mut impl Relay) -> Bytes {
    if relay.is_complete() {
        return relay.end();
    }
    let message = "The model server broke off its answer; repeat the request.";
    relay.fail(&ApiError::new(StatusCode::BAD_GATEWAY, "model_server_error", message))
}
