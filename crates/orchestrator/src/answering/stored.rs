//! Turns by id: finds and cancels them.

use std::time::Duration;

use contract::thread::{AnswerState, GetTurn, Turn};
use subjects::{HandoffId, ScopeId};
use tokio::time::timeout;

use crate::{caller::Caller, error::ApiError, gateway::CallError, state::App};

/// How long a cancellation waits for the handoff to end.
const CANCEL_WAIT: Duration = Duration::from_secs(5);

/// Returns a turn of the caller's user; `None` if there is none, or it is another user's.
pub(crate) async fn find(app: &App, caller: &Caller, id: HandoffId) -> Result<Option<Turn>, ApiError> {
    match app.gateway.call(&GetTurn { user_id: caller.user.clone(), handoff_id: id }).await {
        Ok(turn) => Ok(Some(turn)),
        Err(CallError::Failed { code, .. }) if code == "not_found" => Ok(None),
        Err(error) => Err(error.into_api_error()),
    }
}

/// Stops the work on a turn, and waits a moment for its end. A turn that is answered stays as it is. One
/// without a worker that could receive it is cancelled later.
pub(crate) async fn cancel(app: &App, user: &ScopeId, turn: &mut Turn) -> Result<(), ApiError> {
    if turn.answer.is_some() {
        return Ok(());
    }
    let mut expected = app.turns.expect(turn.handoff_id, &turn.user_id).await;
    app.turns.cancel_turn(user.clone(), turn.handoff_id).await?;
    if let Ok(delivered) = timeout(CANCEL_WAIT, expected.wait(&app.turns)).await {
        app.turns.store_delivered(turn.handoff_id, &delivered).await;
        let mut answer = delivered.answer;
        // As it is stored.
        if answer.state == AnswerState::Failed {
            answer.end_as_cancelled();
        }
        turn.answer = Some(answer);
    }
    Ok(())
}
