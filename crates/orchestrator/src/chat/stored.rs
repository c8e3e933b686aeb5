//! Completions by id: fetches and cancels them.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use contract::thread::{GetTurn, Turn};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use subjects::HandoffId;
use tokio::time::timeout;

use super::{
    completion::{Completion, CompletionId, name_turn},
    plain::answer_response,
};
use crate::{caller::Caller, error::ApiError, gateway::CallError, respond::json, state::App};

/// How long a cancellation waits for the handoff to end.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// `GET /v1/chat/completions/{id}`: the stored completion. While the turn is worked on: 202 with no choices.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(state_of(&find(&app, &caller, &id).await?))
}

/// `POST /v1/chat/completions/{id}/cancel`: stops the work. A turn that is answered stays as it is.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let mut turn = find(&app, &caller, &id).await?;
    if turn.answer.is_none() {
        let mut expected = app.turns.expect(turn.handoff_id).await;
        app.turns.cancel(turn.handoff_id).await?;
        if let Ok(answer) = timeout(CANCEL_WAIT, expected.wait(&app.turns)).await {
            app.turns.end(turn.handoff_id, answer.clone()).await;
            turn.answer = Some(answer);
        }
    }
    Ok(state_of(&turn))
}

async fn find(app: &App, caller: &Caller, id: &str) -> Result<Turn, ApiError> {
    let missing = || {
        let message = format!("There is no completion {id}, or it is another user's.");
        ApiError::new(StatusCode::NOT_FOUND, "completion_not_found", message)
    };
    let handoff_id: HandoffId =
        id.strip_prefix("chatcmpl-").and_then(|id| id.parse().ok()).ok_or_else(missing)?;
    match app.gateway.call(&GetTurn { user_id: caller.user.clone(), handoff_id }).await {
        Ok(turn) => Ok(turn),
        Err(CallError::Failed { code, .. }) if code == "not_found" => Err(missing()),
        Err(error) => Err(error.into_api_error()),
    }
}

fn state_of(turn: &Turn) -> Response {
    if let Some(answer) = &turn.answer {
        return answer_response(turn, answer);
    }
    let id = CompletionId::of(turn);
    let mut response = json(StatusCode::ACCEPTED, &Completion::in_progress(&id, turn));
    name_turn(response.headers_mut(), turn);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
