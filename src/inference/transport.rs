//! The HTTP beneath: requests with the token as it is now, replies as events, errors as what follows from them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use mcp::Token;
use reqwest::{
    RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde_json::Value;
use sse_stream::{Sse, SseStream};

use super::request::{Fault, Nature};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// Of an error page no more is read than can be shown.
const MOST_ERROR_BYTES: usize = 4 * 1_024;
const MOST_ERROR_CHARS: usize = 300;
const TRACEPARENT: &str = "traceparent";
/// What a stream says when it is over.
const DONE: &str = "[DONE]";

/// The way to one server.
#[derive(Debug)]
pub(super) struct Transport {
    http: reqwest::Client,
    base_url: String,
    token: Option<Arc<Token>>,
    most_bytes: usize,
}

impl Transport {
    /// Of one reply no more than `most_bytes` are read, frames included.
    pub(super) fn new(
        base_url: &str,
        token: Option<Token>,
        most_bytes: usize,
    ) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            // A redirect could carry the token to someone else.
            .redirect(reqwest::redirect::Policy::none())
            // Prompts and tokens go where the configuration says, and nowhere else.
            .no_proxy()
            .tcp_nodelay(true)
            .build()?;
        let base_url = base_url.trim_end_matches('/').to_owned();
        Ok(Self { http, base_url, token: token.map(Arc::new), most_bytes })
    }

    /// Asks, and gives what comes back as it comes.
    pub(super) async fn ask(&self, body: Vec<u8>) -> Result<Events, Fault> {
        let request = self.http.post(format!("{}/chat/completions", self.base_url));
        let mut request =
            request.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body);
        if let Some(traceparent) = telemetry::traceparent() {
            request = request.header(TRACEPARENT, traceparent);
        }
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return Err(turned_down(response, self.token.as_deref()).await);
        }
        let streams = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let pieces = limited(response, self.most_bytes);
        Ok(if streams {
            Events::Streamed(SseStream::from_bytes_stream(pieces).boxed())
        } else {
            Events::Whole(Some(whole(pieces).await?))
        })
    }

    /// Whether someone is there at all. Any answer but a server's own failure will do.
    pub(super) async fn is_there(&self) -> bool {
        let models = self.http.get(format!("{}/models", self.base_url)).timeout(PROBE_WITHIN);
        self.send(models).await.is_ok_and(|response| {
            !response.status().is_server_error() && response.status() != StatusCode::UNAUTHORIZED
        })
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, Fault> {
        if let Some(token) = &self.token {
            let header = token.header().await.map_err(|error| stumble(&broker::Chain(&error).to_string()))?;
            request = request.header(AUTHORIZATION, header);
        }
        request.send().await.map_err(|error| {
            // Nothing of an answer was heard: not a fault of this one request.
            // An address of ours is nothing for a user's eyes.
            let why = short(&broker::Chain(&error.without_url()).to_string());
            Fault::Passing { why, after: None, nature: Nature::Outage }
        })
    }
}

/// What a reply consists of.
pub(super) enum Events {
    Streamed(BoxStream<'static, Result<Sse, sse_stream::Error>>),
    /// A server that does not stream sends the whole reply as one JSON document.
    Whole(Option<Value>),
}

impl Events {
    /// `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Value, Fault>> {
        let stream = match self {
            Self::Whole(document) => return document.take().map(Ok),
            Self::Streamed(stream) => stream,
        };
        loop {
            let event = match stream.next().await? {
                Ok(event) => event,
                Err(error) => return Some(Err(stumble(&broker::Chain(&error).to_string()))),
            };
            // Some servers send events without data to keep the connection alive.
            let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
            if data == DONE {
                return None;
            }
            // The parser's own words would quote the reply.
            return Some(
                serde_json::from_str(&data).map_err(|_| stumble("an event of the stream is not JSON")),
            );
        }
    }
}

fn limited(
    response: Response,
    most_bytes: usize,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let mut left = most_bytes;
    response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| std::io::Error::other(error.without_url()))?;
        left = left.checked_sub(piece.len()).ok_or_else(|| std::io::Error::other("the reply has no end"))?;
        Ok(piece)
    })
}

async fn whole(pieces: impl Stream<Item = std::io::Result<Bytes>>) -> Result<Value, Fault> {
    let mut pieces = std::pin::pin!(pieces);
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(|error| stumble(&broker::Chain(&error).to_string()))?);
    }
    serde_json::from_slice(&body).map_err(|_| stumble("the reply is neither a stream of events nor JSON"))
}

/// What the server said instead of an answer.
async fn turned_down(response: Response, token: Option<&Token>) -> Fault {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(wanted_wait);
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        body.extend_from_slice(&piece);
        if body.len() > MOST_ERROR_BYTES {
            break;
        }
    }
    let said: Option<Value> = serde_json::from_slice(&body).ok();
    let message = said
        .as_ref()
        .and_then(|said| said.pointer("/error/message").or_else(|| said.get("error")).and_then(Value::as_str))
        .map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
    // Some quote what they were sent.
    let message = match token {
        Some(token) => token.mask(message),
        None => message,
    };
    let why = format!("HTTP {status}: {}", short(&message));
    match status {
        status if status.is_server_error() => Fault::Passing { why, after, nature: Nature::Outage },
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Fault::Passing { why, after, nature: Nature::Outage }
        }
        StatusCode::UNAUTHORIZED => Fault::Unauthorized(why),
        _ => Fault::Final(why),
    }
}

/// In seconds. The other form, a date, would need this clock to agree with the server's; it gets the usual wait.
fn wanted_wait(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// A fault of this one request, which may pass.
pub(super) fn stumble(why: &str) -> Fault {
    Fault::Passing { why: short(why), after: None, nature: Nature::Stumble }
}

/// One line, without control characters and secrets, of a length that people read.
fn short(text: &str) -> String {
    // Cut in the middle, a secret may not look like one any more.
    let text = telemetry::redact(text);
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(MOST_ERROR_CHARS).collect()
}
