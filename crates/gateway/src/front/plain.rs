//! Calls in which nothing is unusual, answered here: rmcp starts a service for each request, which takes longer than the
//! rest of a call. Whatever is unusual is for rmcp to decide, so nothing is refused in here for its form.

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
use tracing::error;
use upstream::Progress;

use super::{
    call::{Call, PROGRESS_WAITING, told},
    edge::{Identity, MCP_HEADERS, NOT_PASSED_ON},
};
use crate::{calls::Calls, catalogue::Catalogue};

const METHOD: &str = "tools/call";
/// What the protocol itself says in `_meta`.
const RESERVED: &str = "io.modelcontextprotocol/";
const KNOWN_RESERVED: [&str; 3] = ["protocolVersion", "clientInfo", "clientCapabilities"];
const PROGRESS_TOKEN: &str = "progressToken";
/// As rmcp's.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// A call that needs nothing of rmcp.
#[derive(Debug)]
pub(super) struct Plain {
    id: RequestId,
    name: String,
    arguments: Option<JsonObject>,
    meta: RequestMetaObject,
    progress: Option<ProgressToken>,
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

/// `None` is no refusal: rmcp decides.
pub(super) fn read(
    headers: &HeaderMap,
    body: &[u8],
    hosts: &[String],
    catalogue: &Catalogue,
) -> Option<Plain> {
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
    let is_plain = message.method == METHOD
        && if is_newer {
            text(HEADER_MCP_METHOD) == Some(METHOD)
                && text(HEADER_MCP_NAME) == Some(&name)
                && !name.starts_with(BASE64_HEADER_PREFIX)
                && meta.protocol_version().is_some_and(|meant| meant.as_str() == version)
                && meta.client_capabilities().is_some()
                && reserved(&meta).all(|key| KNOWN_RESERVED.contains(&key))
                && catalogue.get(&name).is_none_or(|tool| !tool.wants_headers)
        } else {
            ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version)
                && !headers.contains_key(HEADER_MCP_METHOD)
                && !headers.contains_key(HEADER_MCP_NAME)
                && reserved(&meta).next().is_none()
        };
    let progress = meta.get_progress_token();
    let is_plain = is_plain && progress.is_some() == meta.0.0.contains_key(PROGRESS_TOKEN);
    is_plain.then_some(Plain { id: message.id, name, arguments, meta, progress, is_newer })
}

/// Of what is not MCP's, rmcp never hears.
fn is_known(name: &HeaderName) -> bool {
    let name = name.as_str();
    !name.starts_with(MCP_HEADERS)
        || NOT_PASSED_ON.contains(&name)
        || [HEADER_MCP_PROTOCOL_VERSION, HEADER_MCP_METHOD, HEADER_MCP_NAME]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
}

fn reserved(meta: &RequestMetaObject) -> impl Iterator<Item = &str> {
    meta.0.0.keys().filter_map(|key| key.strip_prefix(RESERVED))
}

/// Letter for letter as it is configured, with any port if none is. Other spellings of the same are rmcp's to know.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "0"));
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    !name.is_empty()
        && name.bytes().all(is_letter)
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok()
        && allowed.iter().any(|allowed| allowed == host || allowed == name)
}

impl Plain {
    pub(super) async fn answer(self, calls: Arc<Calls>, identity: Identity) -> Response {
        let Self { id, name, arguments, meta, progress, is_newer } = self;
        let call = match Call::read(name, arguments, &meta) {
            Ok(call) => call,
            Err(error) => return whole(&ServerJsonRpcMessage::error(error, Some(id))),
        };
        let Some(token) = progress else {
            return whole(&message(id, is_newer, call.run(&calls, identity, None).await));
        };
        let (sender, received) = mpsc::channel(PROGRESS_WAITING);
        let called = async move { message(id, is_newer, call.run(&calls, identity, Some(sender)).await) };
        let mut said = Said { token, received, called: Some(Box::pin(called)), last: None };
        match said.next().await {
            Some(first @ ServerJsonRpcMessage::Notification(_)) => streamed(first, said),
            Some(answer) => whole(&answer),
            // There always is an answer.
            None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}

/// What a caller is told: how far the call is, if there is something to tell, and its answer.
struct Said {
    token: ProgressToken,
    received: mpsc::Receiver<Progress>,
    called: Option<BoxFuture<'static, ServerJsonRpcMessage>>,
    last: Option<ServerJsonRpcMessage>,
}

impl Said {
    async fn next(&mut self) -> Option<ServerJsonRpcMessage> {
        if let Some(called) = &mut self.called {
            select! {
                biased;
                // Cancel-safe: what was not yet received stays in the channel.
                Some(progress) = self.received.recv() => return Some(self.progress(progress)),
                // By reference: losing a race keeps its progress.
                answer = called => self.last = Some(answer),
            }
            self.called = None;
        }
        // What was said before the end comes before the answer.
        match self.received.try_recv() {
            Ok(progress) => Some(self.progress(progress)),
            Err(_) => self.last.take(),
        }
    }

    fn progress(&self, progress: Progress) -> ServerJsonRpcMessage {
        let notification = ProgressNotification::new(told(&self.token, progress));
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

fn whole(message: &ServerJsonRpcMessage) -> Response {
    match serde_json::to_vec(message) {
        Ok(body) => ([(CONTENT_TYPE, JSON_MIME_TYPE)], Body::from(body)).into_response(),
        Err(error) => {
            error!(%error, "Response not serialised.");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

fn streamed(first: ServerJsonRpcMessage, said: Said) -> Response {
    let rest = stream::unfold(said, async |mut said| Some((said.next().await?, said)));
    let events = stream::iter([first]).chain(rest).map(|message| {
        // What was an answer a moment ago always becomes JSON.
        Ok::<_, Infallible>(Event::default().data(serde_json::to_string(&message).unwrap_or_default()))
    });
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    ([NO_BUFFERING], stream).into_response()
}

#[cfg(test)]
mod tests;
