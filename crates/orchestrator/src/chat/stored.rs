//! Completions by id: fetches and cancels them.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Response};
use contract::thread::Turn;
use http::StatusCode;

use super::surface::{ChatSurface, ID_PREFIX};
use crate::{
    answering::{Surface, stored},
    caller::Caller,
    error::{ApiError, printable},
    path_id::PathId,
    state::App,
};

/// `GET /v1/chat/completions/{id}`: the stored completion. While the turn is worked on: 202 with no choices.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    Ok(state_of(&find(&app, &caller, &id).await?))
}

/// `POST /v1/chat/completions/{id}/cancel`: stops the work. A turn that is answered stays as it is.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let mut turn = find(&app, &caller, &id).await?;
    stored::cancel(&app, &caller.user, &mut turn).await?;
    Ok(state_of(&turn))
}

async fn find(app: &App, caller: &Caller, id: &str) -> Result<Turn, ApiError> {
    let missing = || {
        let message = format!("There is no completion {}, or it is another user's.", printable(id));
        ApiError::new(StatusCode::NOT_FOUND, "completion_not_found", message)
    };
    let handoff_id = id.strip_prefix(ID_PREFIX).and_then(|id| id.parse().ok()).ok_or_else(missing)?;
    stored::find(app, caller, handoff_id).await?.ok_or_else(missing)
}

fn state_of(turn: &Turn) -> Response {
    let surface = ChatSurface::default();
    match &turn.answer {
        Some(answer) => surface.answered(turn, answer),
        None => surface.in_progress(turn),
    }
}
