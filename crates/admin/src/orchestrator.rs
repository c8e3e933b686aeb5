//! The orchestrator with which the console chats, over its OpenAI-compatible API.

use std::{fmt, time::Duration};

use contract::thread::MAX_NAME_BYTES;
use futures_util::{StreamExt, stream::BoxStream};
use http::{
    HeaderMap,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use reqwest::{RequestBuilder, Response, redirect};
use rustls::crypto::{CryptoProvider, ring};
use serde::Deserialize;
use serde_json::{Value, json};
use sse_stream::{Sse, SseStream};
use subjects::{HandoffId, MODEL_ID};
use tokio::time::timeout;
use tracing::{debug, warn};
use url::Url;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an orchestrator may take until it has accepted a message or stopped its work.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// A stream sends a comment every few seconds. After this silence it is lost.
const MAX_SILENCE: Duration = Duration::from_secs(60);
const MAX_ERROR_BYTES: usize = 64 << 10;
const THREAD: &str = "x-cynode-thread";
const HANDOFF: &str = "x-cynode-handoff";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const DONE: &str = "[DONE]";

/// A client of one orchestrator.
#[derive(Debug)]
pub(crate) struct Orchestrator {
    /// `None` if the HTTP client cannot be made.
    http: Option<reqwest::Client>,
    /// Without a slash at the end.
    url: String,
}

/// A message of a user.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// A thread of the user; without it a new one begins.
    pub(crate) thread: Option<&'a str>,
    pub(crate) text: &'a str,
    /// Names the message: sent twice, it is the same.
    pub(crate) request_key: &'a str,
}

/// Why an orchestrator did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChatFailure {
    /// `admin.orchestrator_url` is not set.
    NotConfigured,
    /// The token of an administrator names no user.
    NoUser,
    /// Nothing answers at this address.
    Unreachable {
        url: String,
    },
    /// It answers, but not as an orchestrator does.
    NotAnOrchestrator {
        url: String,
    },
    Refused {
        code: String,
        message: String,
        retry_after: Option<u64>,
    },
}

/// A message that was accepted, and the stream of its answer. Dropping it does not stop the work.
pub(crate) struct Answering {
    pub(crate) thread_id: String,
    pub(crate) handoff_id: HandoffId,
    events: BoxStream<'static, Result<Sse, sse_stream::Error>>,
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").field("handoff_id", &self.handoff_id).finish_non_exhaustive()
    }
}

/// The next event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// Text of the answer, which may still be replaced.
    Text(String),
    /// A step of the manager, such as a tool call.
    Progress(String),
    /// The answer is stored in its thread: a success or a failure.
    Ended,
    /// The stream broke. The work goes on.
    Lost,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMember,
}

#[derive(Deserialize)]
struct ErrorMember {
    message: String,
    #[serde(default)]
    code: Option<String>,
}

impl Orchestrator {
    pub(crate) fn new(url: &Url) -> Self {
        if CryptoProvider::get_default().is_none() {
            // Fails if another thread installed a provider first, which is fine.
            drop(ring::default_provider().install_default());
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // A redirect or a proxy could send the key elsewhere.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .build();
        if let Err(error) = &http {
            warn!(%error, "HTTP client for the orchestrator not available.");
        }
        Self { http: http.ok(), url: url.as_str().trim_end_matches('/').to_owned() }
    }

    /// Sends a message with an API key of its user. Returns once the message is accepted.
    pub(crate) async fn send(&self, key: &str, message: Message<'_>) -> Result<Answering, ChatFailure> {
        let body = json!({
            "model": MODEL_ID,
            "stream": true,
            "messages": [{ "role": "user", "content": message.text }],
        });
        let mut request = self.post("chat/completions", key)?.header(CONTENT_TYPE, "application/json");
        request = request.header(IDEMPOTENCY_KEY, message.request_key).body(body.to_string());
        if let Some(thread) = message.thread.filter(|thread| thread.len() <= MAX_NAME_BYTES) {
            request = request.header(THREAD, thread);
        }
        let answer = self.ask(request).await?;
        if !answer.status().is_success() {
            return Err(self.read_refusal(answer).await);
        }
        let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let handoff_id = header(HANDOFF).and_then(|id| id.parse().ok());
        let (Some(thread), Some(handoff_id)) = (header(THREAD), handoff_id) else {
            return Err(ChatFailure::NotAnOrchestrator { url: self.url.clone() });
        };
        let thread_id = thread.to_owned();
        let events = SseStream::from_bytes_stream(answer.bytes_stream()).boxed();
        Ok(Answering { thread_id, handoff_id, events })
    }

    /// Stops the work on a turn. One that has ended stays as it is.
    pub(crate) async fn stop(&self, key: &str, turn: HandoffId) -> Result<(), ChatFailure> {
        let request = self.post(&format!("chat/completions/chatcmpl-{turn}/cancel"), key)?;
        let answer = self.ask(request).await?;
        // A turn that ended without an answer is reported as the error that it ended with.
        if answer.status().is_success() || answer.headers().contains_key(HANDOFF) {
            return Ok(());
        }
        Err(self.read_refusal(answer).await)
    }

    fn post(&self, path: &str, key: &str) -> Result<RequestBuilder, ChatFailure> {
        let http = self.http.as_ref().ok_or_else(|| self.unreachable())?;
        Ok(http.post(format!("{}/{path}", self.url)).bearer_auth(key))
    }

    /// Sends a request and returns once the head of its answer is there.
    async fn ask(&self, request: RequestBuilder) -> Result<Response, ChatFailure> {
        match timeout(HEAD_TIMEOUT, request.send()).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                warn!(error = %broker::Chain(&error), "Orchestrator not reachable.");
                Err(self.unreachable())
            }
            Err(_) => {
                warn!(url = self.url, "Orchestrator does not answer.");
                Err(self.unreachable())
            }
        }
    }

    fn unreachable(&self) -> ChatFailure {
        ChatFailure::Unreachable { url: self.url.clone() }
    }

    async fn read_refusal(&self, mut answer: Response) -> ChatFailure {
        let (status, retry_after) = (answer.status(), retry_after(answer.headers()));
        let mut body = Vec::new();
        while let Ok(Ok(Some(piece))) = timeout(HEAD_TIMEOUT, answer.chunk()).await {
            body.extend_from_slice(&piece);
            if body.len() > MAX_ERROR_BYTES {
                break;
            }
        }
        let Ok(ErrorBody { error }) = serde_json::from_slice(&body) else {
            return ChatFailure::NotAnOrchestrator { url: self.url.clone() };
        };
        let code = error.code.unwrap_or_default();
        debug!(%status, code, "Orchestrator refused a request.");
        ChatFailure::Refused { code, message: error.message, retry_after }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}

impl Answering {
    /// Waits for what the stream says next. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Update {
        loop {
            let Ok(Some(Ok(event))) = timeout(MAX_SILENCE, self.events.next()).await else {
                return Update::Lost;
            };
            if let Some(update) = event.data.as_deref().and_then(read_update) {
                return update;
            }
        }
    }
}

/// Reads one event of a stream. Most have something to show.
fn read_update(data: &str) -> Option<Update> {
    if data == DONE {
        return Some(Update::Ended);
    }
    let chunk: Value = serde_json::from_str(data).ok()?;
    if let Some(error) = chunk.get("error") {
        let is_stopping = error.get("code").and_then(Value::as_str) == Some("stopping");
        return Some(if is_stopping { Update::Lost } else { Update::Ended });
    }
    let delta = chunk.pointer("/choices/0/delta")?;
    let text = |name: &str| delta.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let content = text("content").map(|text| Update::Text(text.to_owned()));
    content.or_else(|| text("reasoning_content").map(|text| Update::Progress(text.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_stream_are_read() {
        let delta = |delta: Value| json!({ "choices": [{ "index": 0, "delta": delta }] }).to_string();
        for (data, expected) in [
            (delta(json!({ "role": "assistant", "content": "" })), None),
            (delta(json!({ "content": "Hello" })), Some(Update::Text("Hello".to_owned()))),
            (
                delta(json!({ "reasoning_content": "→ db.task.list\n" })),
                Some(Update::Progress("→ db.task.list\n".to_owned())),
            ),
            (DONE.to_owned(), Some(Update::Ended)),
            (json!({ "error": { "code": "cancelled", "message": "no" } }).to_string(), Some(Update::Ended)),
            (json!({ "error": { "code": "stopping", "message": "no" } }).to_string(), Some(Update::Lost)),
            (json!({ "choices": [], "usage": {} }).to_string(), None),
            ("{".to_owned(), None),
        ] {
            assert_eq!(read_update(&data), expected, "{data}");
        }
    }
}
