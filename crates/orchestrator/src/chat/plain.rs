//! A completion that is answered as a whole.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use contract::thread::{Turn, TurnAnswer};
use http::StatusCode;
use tokio::{select, time::timeout};

use super::{
    completion::{Completion, CompletionId, name_turn},
    failure::{failure, stopping},
};
use crate::{
    crash_points::{Point, reach},
    error::ApiError,
    rate_limits::TurnPermit,
    respond::json,
    state::App,
    turns::BegunTurn,
};

/// Waits for the answer of a turn, up to the configured time.
pub(super) async fn respond(app: &Arc<App>, mut begun: BegunTurn, permit: TurnPermit) -> Response {
    let answered = match begun.expected.take() {
        None => begun.turn.answer.clone(),
        Some(mut expected) => {
            let waited = select! {
                biased;
                waited = timeout(app.config.chat.wait, expected.wait(&app.turns)) => waited.ok(),
                // The client is told to repeat the request, elsewhere.
                () = app.closing.cancelled() => None,
            };
            if let Some(answer) = &waited {
                reach(Point::AnswerKnown).await;
                app.turns.end(begun.turn.handoff_id, answer.clone()).await;
                reach(Point::AnswerStored).await;
            }
            waited
        }
    };
    // The work goes on if the time is up: the client was told how to fetch the answer.
    begun.on_disconnect.disarm();
    drop(permit);
    match answered {
        Some(answer) => answer_response(&begun.turn, &answer),
        None => {
            let mut response = pending(app, &begun.turn).into_response();
            name_turn(response.headers_mut(), &begun.turn);
            response
        }
    }
}

/// Returns the response to an answered turn: a completion, or the error with which it failed.
pub(super) fn answer_response(turn: &Turn, answer: &TurnAnswer) -> Response {
    let id = CompletionId::of(turn);
    let mut response = match failure(answer) {
        Some(error) => error.into_response(),
        None => json(StatusCode::OK, &Completion::answered(&id, turn, answer)),
    };
    name_turn(response.headers_mut(), turn);
    response
}

/// OpenAI's SDKs repeat such a request, and so wait for the same turn.
fn pending(app: &App, turn: &Turn) -> ApiError {
    if app.closing.is_cancelled() {
        return stopping(turn.handoff_id);
    }
    let message = format!(
        "There is no answer after {:?}; the work goes on. Fetch the answer with GET \
         /v1/chat/completions/chatcmpl-{}, or use streaming.",
        app.config.chat.wait, turn.handoff_id
    );
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "answer_pending", message)
}
