//! One call of the newer era, without rmcp's client between. That era has no sessions: a call is one exchange, and all that
//! rmcp's tasks would do for it is to pass it on, each at the price of a wake-up.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::{
    model::{
        CallToolRequestParams, ClientConfig, ClientJsonRpcMessage, ClientResult, ElicitResult,
        ElicitationAction, ErrorCode, ErrorData, Implementation, JsonRpcRequest, ProtocolVersion, RequestId,
        ServerJsonRpcMessage, ServerNotification, ServerRequest, ServerResult,
    },
    transport::{
        common::http_header::{BASE64_HEADER_PREFIX, EVENT_STREAM_MIME_TYPE, JSON_MIME_TYPE},
        streamable_http_client::{SseError, StreamableHttpClient, StreamableHttpError},
    },
};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::{
    exchange::{self, Events, Headers, Http, is, unexpected},
    failure::{Failure, Fate, Told},
    raw,
};

const METHOD: &str = "tools/call";
const VERSION: HeaderValue = HeaderValue::from_static("2026-07-28");
/// Beyond any number that rmcp gives to a request.
pub const FIRST_DIRECT: i64 = 1 << 32;
/// How long a stream may take to end after its answer, so that its connection can be used again.
const END_WITHIN: Duration = Duration::from_millis(50);
/// How long to wait before a stream that broke off is taken up again, unless the server says otherwise.
const RESUME_AFTER: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

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
    us: &'a Implementation,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: &'a rmcp::model::ClientCapabilities,
    #[serde(rename = "progressToken")]
    progress: i64,
}

/// Whether a header can say this name as it is. What has to be encoded is left to rmcp.
pub fn can_be_named(name: &str) -> bool {
    name.trim() == name
        && name.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !name.starts_with(BASE64_HEADER_PREFIX)
}

/// A call that is under way. Dropped before its answer, it closes the exchange, by which the server knows that nobody waits
/// any more.
#[derive(Clone, Copy, Debug)]
pub struct Direct<'a> {
    pub http: &'a Http,
    /// As we were introduced to the server.
    pub us: &'a ClientConfig,
    /// Ours alone at this server while the call runs; its progress is told under this number as well.
    pub id: i64,
    /// For what is left to do after the answer.
    pub tasks: &'a TaskTracker,
}

impl Direct<'_> {
    /// `request` must not have in its `_meta` what the protocol itself says there, and its tool must be one that
    /// [`can_be_named`].
    pub async fn call(self, request: &CallToolRequestParams) -> Result<ServerResult, Failure> {
        let message = Message {
            jsonrpc: "2.0",
            id: self.id,
            method: METHOD,
            params: Params {
                meta: Meta {
                    given: request.meta.as_ref().map(|meta| &meta.0.0),
                    version: ProtocolVersion::V_2026_07_28.as_str(),
                    us: &self.us.client_info,
                    capabilities: &self.us.capabilities,
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
        let response = self.http.post(body, None, headers).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(Failure::answered(&self.http.refused(response).await?));
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Err(Failure::protocol(Told("the request was taken and not answered".to_owned())));
        }
        if is(&response, EVENT_STREAM_MIME_TYPE) {
            let events = self.http.events(response, false);
            return Stream { call: self, last_event: None, retry: None }.answer(events).await;
        }
        if !is(&response, JSON_MIME_TYPE) {
            return Err(unexpected(&response).into());
        }
        let body = self.http.body(response).await?;
        match raw::read_call(&body).map_err(exchange::Failure::NotJsonRpc)? {
            ServerJsonRpcMessage::Response(answer) if self.is_ours(&answer.id) => Ok(answer.result),
            // Whatever id it carries: one that could not read the request has none.
            ServerJsonRpcMessage::Error(error) => Err(Failure::answered(&error.error)),
            _ => Err(Failure::protocol(Told("what came answers another request".to_owned()))),
        }
    }

    /// Some servers give a number back as text.
    fn is_ours(&self, id: &RequestId) -> bool {
        match id {
            RequestId::Number(number) => *number == self.id,
            RequestId::String(text) => text.parse() == Ok(self.id),
        }
    }

    /// We have nothing that a server could ask for.
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
        let sent = self.http.post_message(self.http.url.clone(), message, None, None, version()).await;
        if let Err(error) = sent {
            debug!(%error, "MCP notification not delivered.");
        }
    }

    /// Reads what comes after the answer, which is nothing but the end: then the connection can be used again.
    async fn see_off(&self, mut events: Events) {
        for _ in 0..2 {
            if let Some(None) = events.next().now_or_never() {
                return;
            }
            // The end most often came along with the answer, and whoever reads the connection had no time yet to say so.
            yield_now().await;
        }
        self.tasks.spawn(timeout(END_WITHIN, async move { while events.next().await.is_some() {} }));
    }
}

fn not_sent(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure { fate: Fate::NotRun, ..Failure::protocol(error) }
}

fn version() -> Headers {
    Headers::from([(HeaderName::from_static("mcp-protocol-version"), VERSION)])
}

/// An answer that comes as a stream of events.
struct Stream<'a> {
    call: Direct<'a>,
    last_event: Option<String>,
    retry: Option<Duration>,
}

impl Stream<'_> {
    async fn answer(mut self, mut events: Events) -> Result<ServerResult, Failure> {
        loop {
            let event = match events.next().await {
                Some(Ok(event)) => event,
                // Boxed, as all that is rare: or every call would carry the room for it.
                Some(Err(error)) => {
                    events = Box::pin(self.resumed(broken(&error)?)).await?;
                    continue;
                }
                None => {
                    let failure = Failure::lost("the stream ended before the answer");
                    events = Box::pin(self.resumed(failure)).await?;
                    continue;
                }
            };
            self.retry = event.retry.map(Duration::from_millis).or(self.retry);
            self.last_event = event.id.or(self.last_event);
            let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
            let Some(data) = event.data.filter(|_| is_message) else { continue };
            let message = match raw::read_call(data.as_bytes()) {
                Ok(message) => message,
                Err(error) => {
                    debug!(%error, "SSE event is not a JSON-RPC message; ignored.");
                    continue;
                }
            };
            match message {
                ServerJsonRpcMessage::Response(answer) if self.call.is_ours(&answer.id) => {
                    self.call.see_off(events).await;
                    return Ok(answer.result);
                }
                ServerJsonRpcMessage::Error(error)
                    if error.id.as_ref().is_none_or(|id| self.call.is_ours(id)) =>
                {
                    self.call.see_off(events).await;
                    return Err(Failure::answered(&error.error));
                }
                ServerJsonRpcMessage::Request(request) => Box::pin(self.call.decline(request)).await,
                ServerJsonRpcMessage::Notification(said) => {
                    if let (ServerNotification::ToolListChangedNotification(_), Some(tap)) =
                        (said.notification, &self.call.http.tap)
                    {
                        tap.tools_changed();
                    }
                }
                ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {}
            }
        }
    }

    /// The same stream from where it broke off, if the server numbers its events. How long this is tried is for our caller
    /// to bound.
    async fn resumed(&mut self, failure: Failure) -> Result<Events, Failure> {
        let Some(last) = &self.last_event else { return Err(failure) };
        let mut wait = self.retry.unwrap_or(RESUME_AFTER);
        loop {
            sleep(wait).await;
            let http = self.call.http;
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
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
    }
}

/// What a stream that broke off means; an error if it is no use to take it up again.
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
