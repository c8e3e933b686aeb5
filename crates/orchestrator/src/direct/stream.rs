//! Streamed answers: server-sent events that are passed on as they arrive, without secrets.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use http::StatusCode;
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, timeout_at};

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

/// Returns the body of a streamed answer. Dropping it ends the request to the model server.
pub(super) fn body(
    answer: reqwest::Response,
    relay: impl Relay,
    silence: Duration,
    keep_alive: Duration,
) -> Body {
    let events = SseStream::from_bytes_stream(answer.bytes_stream()).boxed();
    Body::from_stream(relayed(events, relay, silence, keep_alive))
}

type Events = BoxStream<'static, Result<Sse, sse_stream::Error>>;

fn relayed(
    events: Events,
    relay: impl Relay,
    silence: Duration,
    keep_alive: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let state = Some((events, relay, Instant::now()));
    futures_util::stream::unfold(state, move |state| async move {
        let (mut events, mut relay, heard_at) = state?;
        let until = (Instant::now() + keep_alive).min(heard_at + silence);
        match timeout_at(until, events.next()).await {
            Err(_) if Instant::now() >= heard_at + silence => Some((Ok(relay.fail(&server::silent())), None)),
            Err(_) => Some((Ok(Bytes::from_static(COMMENT)), Some((events, relay, heard_at)))),
            Ok(None | Some(Err(_))) => Some((Ok(end(&mut relay)), None)),
            Ok(Some(Ok(event))) if event.data.as_deref() == Some(DONE) => Some((Ok(end(&mut relay)), None)),
            Ok(Some(Ok(event))) => Some((Ok(relay.pass(&event)), Some((events, relay, Instant::now())))),
        }
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
