//! One direct call: the request, and the response as JSON or as a stream of events.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::{
    model::{
        CallToolRequestParams, ClientJsonRpcMessage, ClientResult, ElicitResult, ElicitationAction,
        ErrorCode, ErrorData, Implementation, JsonRpcRequest, ProtocolVersion, RequestId,
        ServerJsonRpcMessage, ServerNotification, ServerRequest, ServerResult,
    },
    transport::{
        common::http_header::{EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE},
        streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError},
    },
};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};
use tracing::debug;

use super::Direct;
use crate::{
    exchange::{self, Events, Headers, has_content_type, unexpected_content_type},
    failure::{Failure, Fate, Retry, TextError},
    lease, raw,
};

const METHOD: &str = "tools/call";
const VERSION: HeaderValue = HeaderValue::from_static("2026-07-28");
/// How long to wait for the end of a stream after its response, so that the connection can be reused.
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(50);
/// The first delay before an interrupted stream is resumed, unless the server specifies another.
const RESUME_DELAY: Duration = Duration::from_secs(1);
const MAX_RESUME_DELAY: Duration = Duration::from_secs(30);

#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    id: i64,
    method: &'static str,
    params: Params<'a>,
}

#[derive(Serialize)]
struct Params<'a> {
    #[serde(rename = "_meta")]
    meta: Meta<'a>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a Map<String, Value>>,
}

#[derive(Serialize)]
struct Meta<'a> {
    #[serde(flatten)]
    given: Option<&'a Map<String, Value>>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'a str,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    client_info: &'a Implementation,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: &'a rmcp::model::ClientCapabilities,
    #[serde(rename = "progressToken")]
    progress: i64,
}

/// A direct call. Dropping its future before the response closes the exchange, which cancels the call on the
/// server.
#[derive(Clone, Copy, Debug)]
pub struct DirectCall<'a> {
    pub(super) direct: &'a Direct,
    /// The request id, also used as the progress token.
    pub id: i64,
}

impl DirectCall<'_> {
    /// Sends the call and returns its result. The `_meta` of `request` must not contain keys that the
    /// protocol reserves. If the tool turns out to expect more than a direct call can send, later calls of it
    /// go through rmcp.
    pub async fn call(self, request: &CallToolRequestParams) -> Result<ServerResult, Failure> {
        let called = self.exchange(request).await;
        if matches!(
            called,
            Ok(ServerResult::InputRequiredResult(_)) | Err(Failure { retry: Retry::AfterListing, .. })
        ) {
            self.direct.indirect.insert(&request.name);
        }
        called
    }

    async fn exchange(self, request: &CallToolRequestParams) -> Result<ServerResult, Failure> {
        let http = &self.direct.http;
        let mut given = request.meta.as_ref().map(|meta| meta.0.0.clone());
        let lease = given.as_mut().and_then(lease::take);
        let message = Message {
            jsonrpc: "2.0",
            id: self.id,
            method: METHOD,
            params: Params {
                meta: Meta {
                    given: given.as_ref(),
                    version: ProtocolVersion::V_2026_07_28.as_str(),
                    client_info: &self.direct.client_config.client_info,
                    capabilities: &self.direct.client_config.capabilities,
                    progress: self.id,
                },
                name: &request.name,
                arguments: request.arguments.as_ref(),
            },
        };
        let body = serde_json::to_vec(&message).map_err(not_sent)?;
        let name = HeaderValue::try_from(&*request.name).map_err(not_sent)?;
        let mut headers = version();
        headers.insert(HeaderName::from_static("mcp-method"), HeaderValue::from_static(METHOD));
        headers.insert(HeaderName::from_static("mcp-name"), name);
        headers.extend(lease);
        let response = http.post(body, None, headers).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(Failure::answered(&http.read_error(response).await?));
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Err(Failure::protocol(TextError("the request was accepted but not answered".to_owned())));
        }
        if has_content_type(&response, EVENT_STREAM_MIME_TYPE) {
            let events = http.events(response, false);
            return Stream { call: self, last_event: None, retry: None }.answer(events).await;
        }
        if !has_content_type(&response, JSON_MIME_TYPE) {
            return Err(unexpected_content_type(&response).into());
        }
        let body = http.body(response).await?;
        match raw::parse_call_response(&body).map_err(exchange::Failure::NotJsonRpc)? {
            ServerJsonRpcMessage::Response(answer) if self.is_own_id(&answer.id) => Ok(answer.result),
            // With any id: a server that could not parse the request does not know its id.
            ServerJsonRpcMessage::Error(error) => Err(Failure::answered(&error.error)),
            _ => Err(Failure::protocol(TextError("the response belongs to another request".to_owned()))),
        }
    }

    /// Returns whether this is the id of the call. Some servers return a numeric id as text.
    fn is_own_id(&self, id: &RequestId) -> bool {
        match id {
            RequestId::Number(number) => *number == self.id,
            RequestId::String(text) => text.parse() == Ok(self.id),
        }
    }

    /// Answers a request of the server: pings are answered, everything else is declined.
    async fn decline(&self, request: JsonRpcRequest<ServerRequest>) {
        let result = match request.request {
            ServerRequest::PingRequest(_) => Some(ClientResult::empty(())),
            ServerRequest::ElicitRequest(_) => {
                Some(ClientResult::ElicitResult(ElicitResult::new(ElicitationAction::Decline)))
            }
            _ => None,
        };
        let message = match result {
            Some(result) => ClientJsonRpcMessage::response(result, request.id),
            None => {
                let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client offers nothing", None);
                ClientJsonRpcMessage::error(error, Some(request.id))
            }
        };
        let http = &self.direct.http;
        let sent = http.post_message(http.url.clone(), message, None, None, version()).await;
        if let Err(error) = sent {
            debug!(%error, "MCP notification not delivered.");
        }
    }

    /// Reads the stream to its end, so that the connection can be reused.
    async fn drain_stream(&self, mut events: Events) {
        for _ in 0..2 {
            if let Some(None) = events.next().now_or_never() {
                return;
            }
            // The end usually arrives together with the response, but the connection task has not reported it
            // yet.
            yield_now().await;
        }
        let draining = async move { while events.next().await.is_some() {} };
        self.direct.tasks.spawn(timeout(STREAM_END_TIMEOUT, draining));
    }
}

fn not_sent(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure { fate: Fate::NotRun, ..Failure::protocol(error) }
}

fn version() -> Headers {
    Headers::from([(HeaderName::from_static("mcp-protocol-version"), VERSION)])
}

/// A response that arrives as a stream of server-sent events.
struct Stream<'a> {
    call: DirectCall<'a>,
    last_event: Option<String>,
    retry: Option<Duration>,
}

impl Stream<'_> {
    async fn answer(mut self, mut events: Events) -> Result<ServerResult, Failure> {
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                // Boxed, since it is rarely needed and would make every calling future large.
                Some(Err(error)) => {
                    events = Box::pin(self.resume(broken(&error)?)).await?;
                    continue;
                }
                None => {
                    let failure = Failure::lost("the stream ended before the answer");
                    events = Box::pin(self.resume(failure)).await?;
                    continue;
                }
            };
            self.retry = event.retry.map(Duration::from_millis).or(self.retry);
            self.last_event = event.id.or(self.last_event);
            let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
            let Some(data) = event.data.filter(|_| is_message) else { continue };
            let message = match raw::parse_call_response(data.as_bytes()) {
                Ok(message) => message,
                Err(error) => {
                    debug!(%error, "SSE event is not a JSON-RPC message; ignored.");
                    continue;
                }
            };
            match message {
                ServerJsonRpcMessage::Response(answer) if self.call.is_own_id(&answer.id) => {
                    self.call.drain_stream(events).await;
                    return Ok(answer.result);
                }
                ServerJsonRpcMessage::Error(error)
                    if error.id.as_ref().is_none_or(|id| self.call.is_own_id(id)) =>
                {
                    self.call.drain_stream(events).await;
                    return Err(Failure::answered(&error.error));
                }
                ServerJsonRpcMessage::Request(request) => Box::pin(self.call.decline(request)).await,
                ServerJsonRpcMessage::Notification(message) => {
                    if let (ServerNotification::ToolListChangedNotification(_), Some(tap)) =
                        (message.notification, &self.call.direct.http.tap)
                    {
                        tap.tools_changed();
                    }
                }
                ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {}
            }
        }
    }

    /// Resumes the stream after its last event. Fails with `failure` if the server does not number its events
    /// or refuses to resume. Retries without limit; the caller sets a timeout.
    async fn resume(&mut self, failure: Failure) -> Result<Events, Failure> {
        let Some(last) = &self.last_event else { return Err(failure) };
        let mut wait = self.retry.unwrap_or(RESUME_DELAY);
        loop {
            sleep(wait).await;
            let http = &self.call.direct.http;
            match http.get_stream(http.url.clone(), None, Some(last.clone()), None, version()).await {
                Ok(events) => return Ok(events),
                Err(StreamableHttpError::Client(exchange::Failure::Status { status, .. }))
                    if status.is_client_error() =>
                {
                    return Err(failure);
                }
                Err(
                    StreamableHttpError::ServerDoesNotSupportSse
                    | StreamableHttpError::UnexpectedContentType(_),
                ) => return Err(failure),
                Err(error) => debug!(%error, "SSE stream not resumed yet."),
            }
            wait = wait.saturating_mul(2).min(MAX_RESUME_DELAY);
        }
    }
}

/// Converts a stream error into a failure. Returns it as `Err` if resuming the stream would not help.
fn broken(error: &SseError) -> Result<Failure, Failure> {
    if let SseError::Body(source) = error
        && let Some(source) = source.downcast_ref::<std::io::Error>()
        && let Some(source) = source.get_ref().and_then(|source| source.downcast_ref::<exchange::Failure>())
        && let exchange::Failure::TooLarge(limit) = source
    {
        return Err(exchange::Failure::TooLarge(*limit).into());
    }
    Ok(Failure::lost(&error.to_string()))
}
