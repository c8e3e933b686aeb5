//! Responses by id: fetches and cancels them.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{RawQuery, State},
    response::Response,
};
use contract::thread::Turn;
use http::StatusCode;

use super::{ID_PREFIX, surface::show_state};
use crate::{
    answering::stored,
    caller::Caller,
    error::{ApiError, printable},
    path_id::PathId,
    query,
    state::App,
};

/// `GET /v1/responses/{id}`: the response as it is.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
    RawQuery(text): RawQuery,
) -> Result<Response, ApiError> {
    if query::parse(text.as_deref()).get("stream").is_some_and(|stream| stream != "false") {
        let why = "`stream` is not supported here: a stream cannot be resumed; fetch the response until it \
                   is completed.";
        return Err(ApiError::unsupported("stream", why));
    }
    Ok(show_state(&find(&app, &caller, &id).await?))
}

/// `POST /v1/responses/{id}/cancel`: stops the work. A turn that is answered stays as it is.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let mut turn = find(&app, &caller, &id).await?;
    stored::cancel(&app, &caller.user, &mut turn).await?;
    Ok(show_state(&turn))
}

/// `DELETE /v1/responses/{id}`: refused. A thread is deleted as a whole.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let turn = find(&app, &caller, &id).await?;
    let message = format!(
        "A response is not deleted alone, since its thread continues it; DELETE /v1/threads/{} deletes it \
         with its thread.",
        turn.thread_id
    );
    Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message))
}

/// Returns a turn of the caller's user.
pub(super) async fn find(app: &App, caller: &Caller, id: &str) -> Result<Turn, ApiError> {
    let missing = || {
        let message = format!("There is no response {}, or it is another user's.", printable(id));
        ApiError::new(StatusCode::NOT_FOUND, "response_not_found", message)
    };
    let handoff_id = id.strip_prefix(ID_PREFIX).and_then(|id| id.parse().ok()).ok_or_else(missing)?;
    stored::find(app, caller, handoff_id).await?.ok_or_else(missing)
}
