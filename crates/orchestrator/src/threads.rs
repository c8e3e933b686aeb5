//! `/v1/threads`: the conversations of a user.

mod export;
mod objects;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, Request, State},
    response::Response,
};
use contract::{
    ToolContract,
    thread::{Delete, Get, List, ListMessages, MAX_TITLE_BYTES, Rename},
};
use http::StatusCode;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    body,
    caller::Caller,
    error::{ApiError, printable},
    gateway::CallError,
    path_id::PathId,
    query, respond,
    state::App,
};
pub(crate) use export::export;
use objects::{ListObject, MessageObject, ThreadObject};

/// `GET /v1/threads`: the last changed first.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(text): RawQuery,
) -> Result<Response, ApiError> {
    let (limit, cursor) = query::page(text.as_deref())?;
    let list = List { user_id: caller.user, limit: Some(limit), cursor };
    let page = app.gateway.call(&list).await.map_err(not_listed)?;
    let next = page.next_cursor;
    let data = page.items.into_iter().map(ThreadObject::from).collect();
    Ok(respond::json(StatusCode::OK, &ListObject::new(data, next)))
}

/// `GET /v1/threads/{id}`.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(thread): PathId,
) -> Result<Response, ApiError> {
    let found = call(&app, &thread, &Get { user_id: caller.user, thread: thread.clone() }).await?;
    Ok(respond::json(StatusCode::OK, &ThreadObject::from(found)))
}

/// `GET /v1/threads/{id}/messages`: the oldest first.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(thread): PathId,
    RawQuery(text): RawQuery,
) -> Result<Response, ApiError> {
    let (limit, cursor) = query::page(text.as_deref())?;
    let list = ListMessages { user_id: caller.user, thread: thread.clone(), limit: Some(limit), cursor };
    let page = call(&app, &thread, &list).await?;
    let next = page.next_cursor;
    let data = page.items.into_iter().map(MessageObject::from).collect();
    Ok(respond::json(StatusCode::OK, &ListObject::new(data, next)))
}

/// `POST /v1/threads/{id}` with `{"title": …}`: gives it another title.
pub(crate) async fn rename(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(thread): PathId,
    request: Request,
) -> Result<Response, ApiError> {
    let body = body::read(&app, request.into_body()).await?;
    let body: Value = serde_json::from_slice(&body)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", error.to_string()))?;
    let wrong = || {
        let message =
            format!("`title` is a text of 1 to {MAX_TITLE_BYTES} bytes without control characters.");
        ApiError::invalid("title", message)
    };
    let title = body.get("title").and_then(Value::as_str).map(str::trim).ok_or_else(wrong)?;
    let title = secrets::redact_by_kind(title).into_owned();
    if title.is_empty() || title.len() > MAX_TITLE_BYTES || title.chars().any(char::is_control) {
        return Err(wrong());
    }
    let rename = Rename { user_id: caller.user, thread: thread.clone(), title };
    Ok(respond::json(StatusCode::OK, &ThreadObject::from(call(&app, &thread, &rename).await?)))
}

/// `DELETE /v1/threads/{id}`: deletes it with all that was said in it, and cancels what is worked on.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(thread): PathId,
) -> Result<Response, ApiError> {
    let deleted = call(&app, &thread, &Delete { user_id: caller.user, thread: thread.clone() }).await?;
    if let Some(open) = deleted.open_turn {
        app.turns.publish_stored_cancel(open).await;
    }
    let body = json!({ "id": deleted.thread_id, "object": "thread.deleted", "deleted": true });
    Ok(respond::json(StatusCode::OK, &body))
}

/// Calls a tool about one thread.
async fn call<T>(app: &App, thread: &str, input: &T) -> Result<T::Output, ApiError>
where
    T: ToolContract<Output: DeserializeOwned> + Serialize,
{
    app.gateway.call(input).await.map_err(|error| match error {
        // No thread has a name that is too large.
        CallError::Failed { code, .. } if matches!(code.as_str(), "not_found" | "too_large") => {
            let message = format!("There is no thread {}, or it is another user's.", printable(thread));
            ApiError::new(StatusCode::NOT_FOUND, "thread_not_found", message)
        }
        error => not_listed(error),
    })
}

/// A cursor of another list is an argument that is not valid.
fn not_listed(error: CallError) -> ApiError {
    match error {
        CallError::Failed { code, message, .. } if code == "invalid_arguments" => {
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_value", message)
        }
        error => error.into_api_error(),
    }
}
