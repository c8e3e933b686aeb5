//! The fast path of the MCP endpoint: answers common tool calls without rmcp's server, which starts a service
//! for each request; that takes longer than the rest of a call.
//!
//! Requests with anything unusual go to rmcp; this module never refuses one for its form.
//! `docs/fast-paths.md` tells what it buys, how to switch it off and which test compares both.

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::{
    future::BoxFuture,
    stream::{self, StreamExt},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN},
};
use rmcp::{
    ErrorData,
    model::{
        CallToolResult, JsonObject, JsonRpcVersion2_0, MetaObject, ProgressNotification, ProgressToken,
        ProtocolVersion, RequestId, RequestMetaObject, ServerJsonRpcMessage, ServerNotification,
        ServerResult,
    },
    transport::common::http_header::{
        BASE64_HEADER_PREFIX, EVENT_STREAM_MIME_TYPE, HEADER_MCP_METHOD, HEADER_MCP_NAME,
        HEADER_MCP_PROTOCOL_VERSION, JSON_MIME_TYPE,
    },
};
use serde::Deserialize;
use tokio::{select, sync::mpsc};
use tracing::{debug, error};
use upstream::Progress;

use super::{
    call::{Call, PROGRESS_BUFFER, progress_param},
    headers::{DROPPED_MCP_HEADERS, MCP_HEADER_PREFIX},
    identity::Identity,
};
use registry::catalogue::Catalogue;

use crate::calls::Calls;

const METHOD: &str = "tools/call";
/// Prefix of the keys in `_meta` that the protocol itself defines.
const RESERVED: &str = "io.modelcontextprotocol/";
const KNOWN_RESERVED: [&str; 3] = ["protocolVersion", "clientInfo", "clientCapabilities"];
const PROGRESS_TOKEN: &str = "progressToken";
/// The same interval that rmcp uses.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// A call that can be answered without rmcp.
#[derive(Debug)]
pub(super) struct FastCall {
    id: RequestId,
    name: String,
    arguments: Option<JsonObject>,
    meta: RequestMetaObject,
    progress: Option<ProgressToken>,
    /// Whether the caller uses protocol version 2026-07-28.
    is_newer: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'m> {
    #[serde(rename = "jsonrpc")]
    _jsonrpc: JsonRpcVersion2_0,
    id: RequestId,
    #[serde(borrow)]
    method: Cow<'m, str>,
    params: Params,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    #[serde(rename = "_meta")]
    meta: Option<JsonObject>,
    name: String,
    arguments: Option<JsonObject>,
}

/// Parses a request that this module can answer. `None` is not a refusal: rmcp handles the request instead.
pub(super) fn parse(
    headers: &HeaderMap,
    body: &[u8],
    hosts: &[String],
    catalogue: &Catalogue,
) -> Option<FastCall> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let accepted = text(ACCEPT.as_str())?;
    let is_usual = text(CONTENT_TYPE.as_str()) == Some(JSON_MIME_TYPE)
        && accepted.contains(JSON_MIME_TYPE)
        && accepted.contains(EVENT_STREAM_MIME_TYPE)
        && is_allowed(text(HOST.as_str())?, hosts)
        && !headers.contains_key(ORIGIN)
        && headers.keys().all(is_known);
    if !is_usual {
        return None;
    }
    let message: Message<'_> = serde_json::from_slice(body).ok()?;
    let Params { meta, name, arguments } = message.params;
    let meta = RequestMetaObject(MetaObject(meta.unwrap_or_default()));
    let version = text(HEADER_MCP_PROTOCOL_VERSION)?;
    let is_newer = version == ProtocolVersion::V_2026_07_28.as_str();
    let is_supported = message.method == METHOD
        && if is_newer {
            text(HEADER_MCP_METHOD) == Some(METHOD)
                && text(HEADER_MCP_NAME) == Some(&name)
                && !name.starts_with(BASE64_HEADER_PREFIX)
                && meta.protocol_version().is_some_and(|meant| meant.as_str() == version)
                && meta.client_capabilities().is_some()
                && reserved(&meta).all(|key| KNOWN_RESERVED.contains(&key))
                && catalogue.get(&name).is_none_or(|tool| !tool.has_header_arguments)
        } else {
            ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version)
                && !headers.contains_key(HEADER_MCP_METHOD)
                && !headers.contains_key(HEADER_MCP_NAME)
                && reserved(&meta).next().is_none()
        };
    let progress = meta.get_progress_token();
    let is_supported = is_supported && progress.is_some() == meta.0.0.contains_key(PROGRESS_TOKEN);
    is_supported.then_some(FastCall { id: message.id, name, arguments, meta, progress, is_newer })
}

/// Returns whether this module knows the header. Only MCP headers matter, as rmcp gets no others.
fn is_known(name: &HeaderName) -> bool {
    let name = name.as_str();
    !name.starts_with(MCP_HEADER_PREFIX)
        || DROPPED_MCP_HEADERS.contains(&name)
        || [HEADER_MCP_PROTOCOL_VERSION, HEADER_MCP_METHOD, HEADER_MCP_NAME]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
}

fn reserved(meta: &RequestMetaObject) -> impl Iterator<Item = &str> {
    meta.0.0.keys().filter_map(|key| key.strip_prefix(RESERVED))
}

/// Returns whether the host is exactly one of those allowed; one that is allowed without a port matches with
/// any port. Other notations of the same host are left to rmcp.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "0"));
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    !name.is_empty()
        && name.bytes().all(is_letter)
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok()
        && allowed.iter().any(|allowed| allowed == host || allowed == name)
}

impl FastCall {
    pub(super) async fn answer(self, calls: Arc<Calls>, identity: Identity) -> Response {
        debug!("Call takes the fast path.");
        let Self { id, name, arguments, meta, progress, is_newer } = self;
        let call = match Call::read(name, arguments, &meta) {
            Ok(call) => call,
            Err(error) => return json_response(&ServerJsonRpcMessage::error(error, Some(id))),
        };
        let Some(token) = progress else {
            return json_response(&message(id, is_newer, call.run(&calls, identity, None).await));
        };
        let (sender, received) = mpsc::channel(PROGRESS_BUFFER);
        let called = async move { message(id, is_newer, call.run(&calls, identity, Some(sender)).await) };
        let mut replies = Replies { token, received, called: Some(Box::pin(called)), last: None };
        match replies.next().await {
            Some(first @ ServerJsonRpcMessage::Notification(_)) => event_stream(first, replies),
            Some(answer) => json_response(&answer),
            // Cannot happen: the last message is always the answer.
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// The messages to a caller that asked for progress: progress notifications, then the answer.
struct Replies {
    token: ProgressToken,
    received: mpsc::Receiver<Progress>,
    called: Option<BoxFuture<'static, ServerJsonRpcMessage>>,
    last: Option<ServerJsonRpcMessage>,
}

impl Replies {
    async fn next(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(called) = &mut self.called {
            select! {
                biased;
                // Cancel-safe: a message that is not received stays in the channel.
                Some(progress) = self.received.recv() => return Some(self.progress(progress)),
                // Polled by reference, so that the call continues if the other branch wins.
                answer = called => self.last = Some(answer),
            }
            self.called = None;
        }
        // Progress that was sent before the call ended comes before the answer.
        match self.received.try_recv() {
            Ok(progress) => Some(self.progress(progress)),
            Err(_) => self.last.take(),
        }
    }

    fn progress(&self, progress: Progress) -> ServerJsonRpcMessage {
        let notification = ProgressNotification::new(progress_param(&self.token, progress));
        ServerJsonRpcMessage::notification(ServerNotification::ProgressNotification(notification))
    }
}

fn message(id: RequestId, is_newer: bool, called: Result<CallToolResult, ErrorData>) -> ServerJsonRpcMessage {
    match called {
        Ok(result) => {
            let mut result = ServerResult::CallToolResult(result);
            if !is_newer {
                result.strip_result_type_for_legacy_peer();
            }
            ServerJsonRpcMessage::response(result, id)
        }
        Err(error) => ServerJsonRpcMessage::error(error, Some(id)),
    }
}

fn json_response(message: &ServerJsonRpcMessage) -> Response {
    match serde_json::to_vec(message) {
        Ok(body) => ([(CONTENT_TYPE, JSON_MIME_TYPE)], Body::from(body)).into_response(),
        Err(error) => {
            error!(%error, "Response not serialised.");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn event_stream(first: ServerJsonRpcMessage, replies: Replies) -> Response {
    let rest = stream::unfold(replies, async |mut replies| Some((replies.next().await?, replies)));
    let events = stream::iter([first]).chain(rest).map(|message| {
        // Serialising cannot fail: the message was built from JSON values.
        Ok::<_, Infallible>(Event::default().data(subjects::encode_json_text(&message)))
    });
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    ([NO_BUFFERING], stream).into_response()
}

#[cfg(test)]
mod tests;
