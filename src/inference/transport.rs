//! HTTP transport: sends requests with the current token, and maps replies to events and errors to faults.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use mcp::Token;
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::{select, time::timeout};

use super::{
    context_limit,
    held_body::hold,
    learned::Told,
    request::{Fault, FaultKind},
    server,
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes that are read of an error response.
const MAX_ERROR_BYTES: usize = 4 * 1_024;
const MAX_ERROR_CHARS: usize = 300;
const TRACEPARENT: &str = "traceparent";
/// With the value `false`: the same request cannot succeed, whatever its status. The egress and OpenAI send
/// it.
const SHOULD_RETRY: &str = "x-should-retry";
/// The data of the last event of a stream.
const DONE: &str = "[DONE]";

/// Codes of the egress.
const BUDGET_BUSY: &str = "budget_busy";
const EXPIRED_LEASE: &str = "expired_lease";

/// HTTP client for one server.
#[derive(Debug)]
pub(super) struct Transport {
    http: reqwest::Client,
    base_url: String,
    token: Option<Arc<Token>>,
    max_bytes: usize,
}

impl Transport {
    /// Reads at most `max_bytes` of one reply, including the framing.
    pub(super) fn new(
        base_url: &str,
        token: Option<Token>,
        max_bytes: usize,
    ) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect could send the token to another server.
            .redirect(reqwest::redirect::Policy::none())
            // Prompts and tokens must only go to the configured server.
            .no_proxy()
            .tcp_nodelay(true)
            .build()?;
        let base_url = base_url.trim_end_matches('/').to_owned();
        Ok(Self { http, base_url, token: token.map(Arc::new), max_bytes })
    }

    /// Sends a request and returns the events of the reply as they arrive. The body is sent only once the
    /// server is connected and `permit` is there. Fails if the server is silent for `silence`, not counting
    /// the wait for the permit.
    pub(super) async fn ask(
        &self,
        body: Vec<u8>,
        lease: Option<&str>,
        permit: impl Future<Output = ()>,
        silence: Duration,
    ) -> Result<Events, Fault> {
        let length = HeaderValue::from(body.len());
        let (body, mut held) = hold(body);
        let request = self.http.post(format!("{}/chat/completions", self.base_url));
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut request = request.header(CONTENT_LENGTH, length).body(body);
        if let Some(traceparent) = telemetry::traceparent() {
            request = request.header(TRACEPARENT, traceparent);
        }
        if let Some(lease) = lease {
            request = request.header(subjects::headers::LEASE, lease);
        }
        let mut asking = pin!(async { self.read_reply(self.send(request).await?).await });
        let connecting = async {
            select! {
                biased;
                ended = &mut asking => Some(ended),
                () = held.wait_until_connected() => None,
            }
        };
        let asked = match timeout(silence, connecting).await {
            Ok(None) => {
                permit.await;
                held.release();
                timeout(silence, asking).await
            }
            Ok(Some(ended)) => Ok(ended),
            Err(elapsed) => Err(elapsed),
        };
        asked.unwrap_or_else(|_| Err(silence_fault(silence)))
    }

    async fn read_reply(&self, response: Response) -> Result<Events, Fault> {
        if !response.status().is_success() {
            return Err(read_rejection(response, self.token.as_deref()).await);
        }
        let streams = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let pieces = limit_bytes(response, self.max_bytes);
        Ok(if streams {
            Events::Streamed { stream: SseStream::from_bytes_stream(pieces).boxed(), is_done: false }
        } else {
            Events::Whole(Some(read_document(pieces).await?))
        })
    }

    /// Returns whether the server answers with anything but a server error or 401.
    pub(super) async fn probe(&self) -> bool {
        let models = self.http.get(format!("{}/models", self.base_url)).timeout(PROBE_TIMEOUT);
        self.send(models).await.is_ok_and(|response| {
            !response.status().is_server_error() && response.status() != StatusCode::UNAUTHORIZED
        })
    }

    /// Asks what the server knows of a model.
    pub(super) async fn facts(&self, model: &str) -> Told {
        let Some(models) = self.get_json(format!("{}/models", self.base_url)).await else {
            return Told::Nothing;
        };
        let mut facts = server::read_models(&models, model);
        // llama.cpp divides its context among conversations, and says so beside the OpenAI protocol.
        if facts.parameters.is_some()
            && let Some(root) = self.base_url.strip_suffix("/v1")
        {
            let Some(props) = self.get_json(format!("{root}/props")).await else {
                return Told::Some(facts);
            };
            facts.context_tokens = server::read_props(&props).or(facts.context_tokens);
        }
        Told::All(facts)
    }

    /// Returns a JSON document, or null if the server has none. `None` if it does not answer now.
    async fn get_json(&self, url: String) -> Option<Value> {
        let response = self.send(self.http.get(url).timeout(PROBE_TIMEOUT)).await.ok()?;
        match response.status() {
            StatusCode::NOT_IMPLEMENTED => return Some(Value::Null),
            StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                return None;
            }
            status if status.is_server_error() => return None,
            _ => {}
        }
        let body = response.bytes().await.ok()?;
        Some(serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, Fault> {
        if let Some(token) = &self.token {
            let header =
                token.header().await.map_err(|error| request_fault(&broker::Chain(&error).to_string()))?;
            request = request.header(AUTHORIZATION, header);
        }
        request.send().await.map_err(|error| {
            // No response arrived, so the server is unavailable for all requests.
            // The URL is left out, since users must not see internal addresses.
            let why = summarize(&broker::Chain(&error.without_url()).to_string());
            Fault::Transient { why, retry_after: None, kind: FaultKind::Unreachable }
        })
    }
}

/// The events of a reply.
pub(super) enum Events {
    Streamed {
        stream: BoxStream<'static, Result<Sse, sse_stream::Error>>,
        /// The server has said that the stream ends.
        is_done: bool,
    },
    /// A server that does not stream sends the whole reply as one JSON document.
    Whole(Option<Value>),
}

impl Events {
    /// Returns whether the server has said that the stream ends: otherwise the connection may have broken.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Streamed { is_done: true, .. })
    }

    /// Returns the next event, or `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Value, Fault>> {
        let (stream, is_done) = match self {
            Self::Whole(document) => return document.take().map(Ok),
            Self::Streamed { stream, is_done } => (stream, is_done),
        };
        loop {
            let event = match stream.next().await? {
                Ok(event) => event,
                Err(error) => return Some(Err(request_fault(&broker::Chain(&error).to_string()))),
            };
            // Some servers send events without data to keep the connection alive.
            let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
            if data == DONE {
                *is_done = true;
                return None;
            }
            // The parser's message is left out, since it would quote the reply.
            return Some(
                serde_json::from_str(&data).map_err(|_| request_fault("an event of the stream is not JSON")),
            );
        }
    }
}

/// Returns the body as a stream that fails after `max_bytes`.
fn limit_bytes(
    response: Response,
    max_bytes: usize,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let mut left = max_bytes;
    response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| std::io::Error::other(error.without_url()))?;
        left = left
            .checked_sub(piece.len())
            .ok_or_else(|| std::io::Error::other("the reply exceeds the size limit"))?;
        Ok(piece)
    })
}

async fn read_document(pieces: impl Stream<Item = std::io::Result<Bytes>>) -> Result<Value, Fault> {
    let mut pieces = std::pin::pin!(pieces);
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(|error| request_fault(&broker::Chain(&error).to_string()))?);
    }
    serde_json::from_slice(&body)
        .map_err(|_| request_fault("the reply is neither a stream of events nor JSON"))
}

/// Reads an error response and maps its status to a fault.
async fn read_rejection(response: Response, token: Option<&Token>) -> Fault {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(parse_retry_after);
    let is_final = response.headers().get(SHOULD_RETRY).is_some_and(|it| it == "false");
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        body.extend_from_slice(&piece);
        if body.len() > MAX_ERROR_BYTES {
            break;
        }
    }
    let document: Option<Value> = serde_json::from_slice(&body).ok();
    let message = document
        .as_ref()
        .and_then(|document| {
            document.pointer("/error/message").or_else(|| document.get("error")).and_then(Value::as_str)
        })
        .map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
    // Some servers quote the request, including the token.
    let message = match token {
        Some(token) => token.mask(message),
        None => message,
    };
    let why = format!("HTTP {status}: {}", summarize(&message));
    let code = document.as_ref().and_then(|document| document.pointer("/error/code")).and_then(Value::as_str);
    match status {
        // The message is for people; the status would tell them to wait.
        status if is_final && (status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS) => {
            let message = summarize(&message);
            Fault::Denied { why: if message.is_empty() { why } else { message }, is_expired_lease: false }
        }
        StatusCode::TOO_MANY_REQUESTS if code == Some(BUDGET_BUSY) => {
            Fault::Transient { why, retry_after, kind: FaultKind::Limited }
        }
        StatusCode::FORBIDDEN | StatusCode::PAYMENT_REQUIRED => {
            Fault::Denied { why, is_expired_lease: code == Some(EXPIRED_LEASE) }
        }
        // Some servers report a schema that they cannot use as their own failure.
        status if status.is_server_error() && !is_about_a_grammar(&why) => {
            Fault::Transient { why, retry_after, kind: FaultKind::Outage }
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Fault::Transient { why, retry_after, kind: FaultKind::Outage }
        }
        StatusCode::UNAUTHORIZED => Fault::Unauthorized(why),
        // Some servers name the limit beside the message.
        _ => {
            let body = String::from_utf8_lossy(&body);
            if context_limit::says_too_long(&body) {
                Fault::TooLong { limit: context_limit::limit(&body), why: context_limit::explain(&why) }
            } else {
                Fault::Permanent(why)
            }
        }
    }
}

/// Maps an error that the server sent in a stream to a fault.
pub(super) fn stream_fault(why: &str) -> Fault {
    if context_limit::says_too_long(why) {
        return Fault::TooLong {
            limit: context_limit::limit(why),
            why: context_limit::explain(&summarize(why)),
        };
    }
    if is_about_a_grammar(why) { Fault::Permanent(summarize(why)) } else { request_fault(why) }
}

fn is_about_a_grammar(why: &str) -> bool {
    let why = why.to_lowercase();
    ["grammar", "json schema", "json_schema"].iter().any(|sign| why.contains(sign))
}

/// Parses `Retry-After` in seconds. A date is ignored, since it would require synchronised clocks; the usual
/// wait applies.
fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Returns the fault of a server that said nothing for `limit`.
pub(super) fn silence_fault(limit: Duration) -> Fault {
    request_fault(&format!("silent for {}", humantime::format_duration(limit)))
}

/// Returns a transient fault of this one request.
pub(super) fn request_fault(why: &str) -> Fault {
    Fault::Transient { why: summarize(why), retry_after: None, kind: FaultKind::Request }
}

/// Shortens a text to one line without control characters and secrets.
fn summarize(text: &str) -> String {
    // Redacted before cutting, since a secret that is cut may not be recognised.
    let text = secrets::redact(text);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(MAX_ERROR_CHARS).collect()
}
