//! Begins the turn of a request and waits for its answer as the client wants.

use std::sync::Arc;

use axum::response::Response;
use contract::{
    key::OnDisconnect,
    thread::{BeginTurn, Turn, TurnOptions},
};
use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use subjects::{ChatMessage, HandoffId, ScopeId, Timestamp};
use uuid::Uuid;

use super::{Surface, fields::text_of, plain, stream};
use crate::{
    caller::{Caller, header},
    error::ApiError,
    names,
    spans::TRACEPARENT,
    state::App,
    turns::{NotBegun, TurnRequest, WantsLive},
};

pub(super) const THREAD: &str = "x-cynode-thread";
const HANDOFF: &str = "x-cynode-handoff";
const OPEN_WEBUI_CHAT: &str = "x-openwebui-chat-id";
const PROJECT: &str = "x-cynode-project";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const RETRY_COUNT: &str = "x-stainless-retry-count";

/// A request to the project manager, independent of the API.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Question {
    /// Without secrets. The last one is the user's.
    pub(crate) messages: Vec<ChatMessage>,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) thread: Thread,
    /// `metadata.project_id`.
    pub(crate) project: Option<String>,
}

/// Which thread a request belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thread {
    /// The one that its headers name, or the one whose messages it repeats, or a new one.
    #[default]
    Any,
    /// As before, with `metadata.thread_id` if no header names it.
    Metadata(String),
    /// The one with this id, whatever the headers say, as long as this turn is its last one.
    After { thread: String, turn: HandoffId },
    /// A new one, whatever the headers say and whose messages it repeats.
    New,
}

impl Thread {
    /// Reads `metadata.thread_id`.
    pub(crate) fn of(metadata: Option<&Map<String, Value>>) -> Result<Self, ApiError> {
        Ok(text_of(metadata, "thread_id")?.map_or(Self::Any, Self::Metadata))
    }
}

/// How a client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Plain,
    Stream,
    /// As a stream, whose work goes on without the client whatever its key says.
    DetachedStream,
    /// Not at all: the client fetches it.
    Background,
}

/// Begins a turn and answers with it. A request with the same `body` may be a retry of this one. Fails with
/// [`NotBegun::Moved`] if the thread has gone on after the turn that the request follows.
pub(crate) async fn ask(
    app: &Arc<App>,
    caller: &Caller,
    headers: &HeaderMap,
    body: &[u8],
    (question, delivery): (Question, Delivery),
    surface: impl Surface,
) -> Result<Response, NotBegun> {
    let is_named = matches!(question.thread, Thread::Any | Thread::Metadata(_));
    let follows = match &question.thread {
        Thread::After { turn, .. } => Some(*turn),
        Thread::Any | Thread::Metadata(_) | Thread::New => None,
    };
    let in_new_thread = question.thread == Thread::New;
    let thread = thread(caller, headers, question.thread)?;
    let project_id = project(headers, question.project.as_deref())?;
    let named = thread.as_deref().filter(|_| is_named);
    let (request_key, is_retry) = identity(headers)?;
    let counts_retries = headers.contains_key(RETRY_COUNT);
    let has_key = headers.contains_key(IDEMPOTENCY_KEY);
    let begin = BeginTurn {
        user_id: caller.user.clone(),
        key_id: caller.key.key_id.clone(),
        body_hash: hash(body, named, project_id.as_ref()),
        thread,
        in_new_thread,
        request_key,
        is_retry,
        received_at: (counts_retries && !is_retry && !has_key).then(Timestamp::now),
        options: TurnOptions {
            temperature: question.temperature,
            max_tokens: question.max_tokens,
            project_id,
            background: matches!(delivery, Delivery::Background | Delivery::DetachedStream),
        },
        messages: question.messages,
        max_open: Some(app.config.rate_limits.concurrent_turns),
        follows,
        // Each wait has its own.
        wait_id: None,
    };
    let (live, on_disconnect) = match delivery {
        Delivery::Plain => (WantsLive::NotWanted, caller.key.on_disconnect),
        Delivery::Stream => (WantsLive::Wanted, caller.key.on_disconnect),
        Delivery::DetachedStream => (WantsLive::Wanted, OnDisconnect::Continue),
        Delivery::Background => (WantsLive::NotWanted, OnDisconnect::Continue),
    };
    let traceparent = header(headers, TRACEPARENT)?.map(str::to_owned);
    let request = TurnRequest { begin, on_disconnect, live, counts_retries, traceparent };
    match delivery {
        Delivery::Plain => {
            let begun = app.turns.begin(request).await?;
            Ok(plain::respond(app, begun, &surface).await)
        }
        Delivery::Background => Ok(plain::leave(app.turns.begin(request).await?, &surface)),
        Delivery::Stream | Delivery::DetachedStream => {
            let slot = app.limits.begin_stream()?;
            let begun = app.turns.begin(request).await?;
            let turn = begun.turn.clone();
            let mut response = stream::respond(app, begun, surface, slot);
            name_turn(response.headers_mut(), &turn);
            Ok(response)
        }
    }
}

/// Names thread and handoff of a turn in the headers of a response.
pub(crate) fn name_turn(headers: &mut HeaderMap, turn: &Turn) {
    for (name, value) in [(THREAD, turn.thread_id.as_str()), (HANDOFF, &turn.handoff_id.to_string())] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Returns a digest that distinguishes requests with the same idempotency key: of their bodies, and the
/// thread and project that they name outside of them. JSON has no NUL character.
fn hash(body: &[u8], thread: Option<&str>, project: Option<&ScopeId>) -> String {
    let mut hasher = Sha256::new_with_prefix(body);
    for (what, name) in [("thread", thread), ("project", project.map(ScopeId::as_str))] {
        if let Some(name) = name {
            hasher.update(format!("\0{what}\0{name}"));
        }
    }
    HEXLOWER.encode(&hasher.finalize())
}

/// Returns the name of the request, or that it is a retry of one with the same body. With either, the call to
/// the gateway can be repeated.
fn identity(headers: &HeaderMap) -> Result<(Option<String>, bool), ApiError> {
    if let Some(key) = header(headers, IDEMPOTENCY_KEY)? {
        names::check(IDEMPOTENCY_KEY, key)?;
        return Ok((Some(key.to_owned()), false));
    }
    let retries = header(headers, RETRY_COUNT)?.and_then(|count| count.parse::<u32>().ok());
    match retries {
        Some(1..) => Ok((None, true)),
        Some(0) | None => Ok((Some(format!("request-{}", Uuid::new_v4())), false)),
    }
}

/// Returns what the client calls the thread.
fn thread(caller: &Caller, headers: &HeaderMap, thread: Thread) -> Result<Option<String>, ApiError> {
    let from_metadata = match thread {
        Thread::After { thread, .. } => return Ok(Some(thread)),
        Thread::New => return Ok(None),
        Thread::Metadata(name) => Some(name),
        Thread::Any => None,
    };
    let named = match header(headers, THREAD)? {
        Some(name) => Some((THREAD, name)),
        None if caller.key.is_front_end => header(headers, OPEN_WEBUI_CHAT)?.map(|id| (OPEN_WEBUI_CHAT, id)),
        None => None,
    };
    let named = named.or(from_metadata.as_deref().map(|name| ("metadata.thread_id", name)));
    named.map(|(from, name)| names::check(from, name).map(|()| name.to_owned())).transpose()
}

fn project(headers: &HeaderMap, from_metadata: Option<&str>) -> Result<Option<ScopeId>, ApiError> {
    let named = header(headers, PROJECT)?.map(|id| (PROJECT, id));
    let named = named.or(from_metadata.map(|id| ("metadata.project_id", id)));
    let parse = |(from, id): (&str, &str)| {
        names::refuse_secret(from, id)?;
        id.parse().map_err(|error| ApiError::invalid(from, format!("{from} is not a project: {error}.")))
    };
    named.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn requests_differ_by_body_thread_and_project() {
        let project: ScopeId = "shed".parse().unwrap();
        let hashes = [
            hash(b"{}", None, None),
            hash(b"{} ", None, None),
            hash(b"{}", Some("shed"), None),
            hash(b"{}", Some("fence"), None),
            hash(b"{}", None, Some(&project)),
            hash(b"{}", Some("shed"), Some(&project)),
        ];
        let different: BTreeSet<&String> = hashes.iter().collect();
        assert_eq!(different.len(), hashes.len());
        assert_eq!(hash(b"{}", Some("shed"), Some(&project)), hashes[5]);
    }
}
