//! `POST /v1/chat/completions`: reads the request and decides who answers it.
//!
//! P4, P14: the model id is exactly `cynodeai.pm` for the project manager; any other never reaches it.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use contract::thread::{BeginTurn, TurnOptions};
use data_encoding::HEXLOWER;
use http::HeaderMap;
use sha2::{Digest, Sha256};
use subjects::{MODEL_ID, ScopeId};
use uuid::Uuid;

use super::{
    background_prompts,
    completion::name_turn,
    plain,
    request::{ChatRequest, MAX_NAME_BYTES, model, parse_object},
    stream,
};
use crate::{
    body,
    caller::{Caller, header},
    error::ApiError,
    spans::TRACEPARENT,
    state::App,
    turns::{TurnRequest, WantsLive},
};

const THREAD: &str = "x-cynode-thread";
const OPEN_WEBUI_CHAT: &str = "x-openwebui-chat-id";
const PROJECT: &str = "x-cynode-project";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
const RETRY_COUNT: &str = "x-stainless-retry-count";

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = body::read(&app, body).await?;
    let object = parse_object(&body)?;
    if model(&object)? != MODEL_ID {
        let model = model(&object)?.to_owned();
        return app.direct.complete(&model, object).await;
    }
    let request = ChatRequest::read(&object, app.config.chat.max_messages)?;
    if let Some(task) = background_prompts::recognize(&parts.headers, &request)? {
        return match &app.config.chat.task_model {
            Some(model) => app.direct.complete(model, object).await,
            None => Ok(background_prompts::answer(task, &request)),
        };
    }
    ask_manager(&app, &caller, &parts.headers, &body, request).await
}

/// Begins a turn and answers with it.
async fn ask_manager(
    app: &Arc<App>,
    caller: &Caller,
    headers: &HeaderMap,
    body: &[u8],
    request: ChatRequest,
) -> Result<Response, ApiError> {
    let thread = thread(caller, headers, &request)?;
    let (request_key, is_retry) = identity(headers)?;
    let begin = BeginTurn {
        user_id: caller.user.clone(),
        key_id: caller.key.key_id.clone(),
        thread,
        request_key,
        body_hash: HEXLOWER.encode(&Sha256::digest(body)),
        is_retry,
        options: TurnOptions {
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            project_id: project(headers, &request)?,
        },
        messages: request.messages,
    };
    let permit = app.limits.begin_turn(&caller.key.key_id)?;
    let live = if request.stream { WantsLive::Wanted } else { WantsLive::NotWanted };
    let traceparent = header(headers, TRACEPARENT)?.map(str::to_owned);
    let turn = TurnRequest { begin, on_disconnect: caller.key.on_disconnect, live, traceparent };
    if !request.stream {
        let begun = app.turns.begin(turn).await?;
        return Ok(plain::respond(app, begun, permit).await);
    }
    let slot = app.limits.begin_stream()?;
    let begun = app.turns.begin(turn).await?;
    let turn = begun.turn.clone();
    let mut response = stream::respond(app, begun, request.include_usage, (permit, slot));
    name_turn(response.headers_mut(), &turn);
    Ok(response)
}

/// Returns the name of the request, or that it is a retry of one with the same body. With either, the call to
/// the gateway can be repeated.
fn identity(headers: &HeaderMap) -> Result<(Option<String>, bool), ApiError> {
    if let Some(key) = header(headers, IDEMPOTENCY_KEY)? {
        check_name(IDEMPOTENCY_KEY, key)?;
        return Ok((Some(key.to_owned()), false));
    }
    let retries = header(headers, RETRY_COUNT)?.and_then(|count| count.parse::<u32>().ok());
    match retries {
        Some(1..) => Ok((None, true)),
        Some(0) | None => Ok((Some(format!("request-{}", Uuid::new_v4())), false)),
    }
}

/// Returns what the client calls the thread.
fn thread(caller: &Caller, headers: &HeaderMap, request: &ChatRequest) -> Result<Option<String>, ApiError> {
    let named = match header(headers, THREAD)? {
        Some(name) => Some((THREAD, name)),
        None if caller.key.is_front_end => header(headers, OPEN_WEBUI_CHAT)?.map(|id| (OPEN_WEBUI_CHAT, id)),
        None => None,
    };
    let named = named.or(request.thread.as_deref().map(|name| ("metadata.thread_id", name)));
    named.map(|(from, name)| check_name(from, name).map(|()| name.to_owned())).transpose()
}

fn project(headers: &HeaderMap, request: &ChatRequest) -> Result<Option<ScopeId>, ApiError> {
    let named = header(headers, PROJECT)?.map(|id| (PROJECT, id));
    let named = named.or(request.project.as_deref().map(|id| ("metadata.project_id", id)));
    let parse = |(from, id): (&str, &str)| {
        id.parse().map_err(|error| ApiError::invalid(from, format!("{from} is not a project: {error}.")))
    };
    named.map(parse).transpose()
}

fn check_name(from: &str, name: &str) -> Result<(), ApiError> {
    if name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let message =
            format!("{from} is a name of at most {MAX_NAME_BYTES} bytes without control characters.");
        return Err(ApiError::invalid(from, message));
    }
    Ok(())
}
