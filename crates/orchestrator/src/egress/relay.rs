//! Passes the reply of a provider on: piece by piece, without the provider's key, and within time limits.

use std::{io, time::Duration};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use contract::egress::CallOutcome;
use futures_util::{StreamExt, stream, stream::BoxStream};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING},
};
use tokio::{
    select,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Egress,
    call::{OpenCall, Stage},
    failure,
    mask::Mask,
    provider::{AskError, Asked, Provider},
    usage::UsageReader,
};
use crate::error::ApiError;

/// Headers of a provider's reply that are passed on, besides those about its rate limits.
const PASSED_ON: [HeaderName; 7] = [
    CONTENT_TYPE,
    CACHE_CONTROL,
    RETRY_AFTER,
    HeaderName::from_static("retry-after-ms"),
    HeaderName::from_static("x-should-retry"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
];
const RATE_LIMITS: &str = "x-ratelimit-";

/// Waits for the reply of a provider and returns it as a stream. Dropping either cancels the call.
pub(super) async fn respond(
    egress: &Egress,
    provider: &Provider,
    mut call: OpenCall,
    asking: impl Future<Output = Result<Asked, AskError>>,
    deadline: Instant,
    closing: CancellationToken,
) -> Result<Response, ApiError> {
    let silence = egress.settings.silence;
    call.stage = Stage::Sent;
    let asked = match timeout_at(deadline.min(Instant::now() + silence), asking).await {
        Ok(Ok(asked)) => asked,
        Ok(Err(error)) => {
            call.stage = Stage::Unanswered;
            call.end(CallOutcome::Failed).await;
            return Err(failure::not_asked(provider, &error));
        }
        Err(_) => {
            call.end(CallOutcome::Failed).await;
            return Err(failure::silent(provider, silence));
        }
    };
    let Asked { response, mask } = asked;
    if !response.status().is_success() {
        call.stage = Stage::Unanswered;
        call.end(CallOutcome::Failed).await;
        return failure::pass_on(provider, response, &mask, deadline.min(Instant::now() + silence)).await;
    }
    if is_encoded(response.headers()) {
        call.end(CallOutcome::Failed).await;
        return Err(failure::encoded(provider));
    }
    call.stage = Stage::Replies(UsageReader::new(response.headers().get(CONTENT_TYPE)));
    let (status, headers) = (response.status(), passed_on(response.headers(), &mask));
    let pieces = response.bytes_stream().map(|piece| piece.map_err(reqwest::Error::without_url)).boxed();
    let relay = Relay { pieces, mask, call: Some(call), silence, deadline, closing };
    Ok(reply(status, headers, Body::from_stream(relay.into_stream())))
}

/// Returns a response with a body and these headers.
pub(super) fn reply(status: StatusCode, headers: HeaderMap, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Returns the headers of a reply that are passed on.
pub(super) fn passed_on(headers: &HeaderMap, mask: &Mask) -> HeaderMap {
    let is_passed_on = |name: &HeaderName| PASSED_ON.contains(name) || name.as_str().starts_with(RATE_LIMITS);
    let kept = headers.iter().filter(|(name, value)| is_passed_on(name) && !mask.is_in(value.as_bytes()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns whether a reply is compressed or encoded otherwise, so that a key in it cannot be found.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    [(CONTENT_ENCODING, "identity"), (TRANSFER_ENCODING, "chunked")].into_iter().any(|(name, plain)| {
        let is_plain = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(plain.as_bytes());
        headers.get_all(name).iter().any(|value| !is_plain(value))
    })
}

/// A reply on its way to the agent.
struct Relay {
    pieces: BoxStream<'static, Result<Bytes, reqwest::Error>>,
    mask: Mask,
    /// `None` once it has ended.
    call: Option<OpenCall>,
    silence: Duration,
    deadline: Instant,
    /// Cancelled when the process has to stop.
    closing: CancellationToken,
}

impl Relay {
    fn into_stream(self) -> impl futures_util::Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::unfold(Some(self), |relay: Option<Self>| async move { relay?.next().await })
    }

    /// Returns the next piece, and itself if there may be more.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        let piece = select! {
            biased;
            // Cancel-safe: waiting only.
            () = self.closing.cancelled() => return self.fail("the egress is stopping").await,
            // Cancel-safe: a piece that has not arrived stays in the stream.
            piece = timeout_at(self.deadline.min(Instant::now() + self.silence), self.pieces.next()) => piece,
        };
        match piece {
            Ok(Some(Ok(piece))) => {
                // Reported before the agent sees the end, so that its next call finds the budget as it is.
                if self.call.as_mut().is_some_and(|call| call.read(&piece)) {
                    self.end(CallOutcome::Completed).await;
                }
                let piece = self.mask.push(piece);
                Some((Ok(piece), Some(self)))
            }
            Ok(Some(Err(error))) => {
                let why = broker::Chain(&error).to_string();
                self.fail(&why).await
            }
            Ok(None) => {
                let rest = self.mask.finish();
                self.end(CallOutcome::Completed).await;
                (!rest.is_empty()).then(|| (Ok(rest), None))
            }
            Err(_) => self.fail("the provider was silent for too long, or the reply took too long").await,
        }
    }

    /// Ends the call, if it is open.
    async fn end(&mut self, outcome: CallOutcome) {
        if let Some(call) = self.call.take() {
            call.end(outcome).await;
        }
    }

    /// Breaks the reply off, so that the agent sees that it is not whole.
    async fn fail(mut self, why: &str) -> Option<(io::Result<Bytes>, Option<Self>)> {
        debug!(why, "Provider reply ended early.");
        self.end(CallOutcome::Failed).await;
        Some((Err(io::Error::other("the reply broke off")), None))
    }
}
