//! An answer that is not streamed.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use contract::thread::Turn;
use crash::reach;
use http::StatusCode;
use tokio::{select, time::timeout};

use super::{Surface, ask::name_turn, failure::stopping};
use crate::{crash_points::Point, error::ApiError, state::App, turns::BegunTurn};

/// Waits for the answer of a turn, up to the configured time.
pub(super) async fn respond(app: &Arc<App>, mut begun: BegunTurn, surface: &impl Surface) -> Response {
    let answered = match begun.expected.take() {
        None => begun.turn.answer.clone(),
        Some(mut expected) => {
            let waited = select! {
                biased;
                waited = timeout(app.config.chat.wait, expected.wait(&app.turns)) => waited.ok(),
                // The client gets an error and retries, on another orchestrator.
                () = app.closing.cancelled() => None,
            };
            if let Some(delivered) = &waited {
                reach(Point::AnswerKnown).await;
                app.turns.store_delivered(begun.turn.handoff_id, delivered).await;
                reach(Point::AnswerStored).await;
            }
            waited.map(|delivered| delivered.answer)
        }
    };
    match answered {
        Some(answer) => {
            begun.request_wait.answered();
            if begun.marks_delivery {
                app.turns.mark_delivered(begun.turn.handoff_id);
            }
            surface.answered(&begun.turn, &answer)
        }
        None => {
            begun.request_wait.postpone();
            let path = surface.path(begun.turn.handoff_id);
            let mut response = pending(app, &path).into_response();
            name_turn(response.headers_mut(), &begun.turn);
            response
        }
    }
}

/// Responds at once; the turn continues in the background.
pub(super) fn leave(mut begun: BegunTurn, surface: &impl Surface) -> Response {
    begun.request_wait.answered();
    let turn: &Turn = &begun.turn;
    match &turn.answer {
        Some(answer) => surface.answered(turn, answer),
        None => surface.in_progress(turn),
    }
}

/// Returns the error of a request that waited too long. OpenAI's SDKs retry it and join the same turn.
fn pending(app: &App, path: &str) -> ApiError {
    if app.closing.is_cancelled() {
        return stopping(path);
    }
    let message = format!(
        "There is no answer after {:?}; the work goes on. Fetch the answer with GET {path}, or use \
         streaming.",
        app.config.chat.wait
    );
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "answer_pending", message)
}
