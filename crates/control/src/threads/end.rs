//! `thread.turn.end`: stores the answer of a turn, once.

use contract::thread::{AnswerState, EndTurn, EndedTurn, TurnAnswer};
use policy::Scope;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter};
use subjects::ErrorCode;

use super::{lock, messages::checked_answer};
use crate::{BuiltInTool, Context, Does, ToolError};
use store::entity::{thread, turn};

impl BuiltInTool for EndTurn {
    const TITLE: &'static str = "End a turn";
    const DESCRIPTION: &'static str = "Stores the answer of a turn, after which its thread takes the next \
        request. A turn that has an answer keeps it.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<EndedTurn, ToolError> {
        let id = input.handoff_id.to_string();
        let found = turn::Entity::find_by_id(&id).one(&context.db).await?;
        let Some(found) = found.filter(|found| found.state.is_none()) else {
            return Ok(EndedTurn { ended: false });
        };
        // Deleted meanwhile, with its turns.
        let Some(thread) = lock(&context.db, &found.thread_id).await? else {
            return Ok(EndedTurn { ended: false });
        };
        Ok(EndedTurn { ended: end(context, &thread, &id, checked_answer(input.answer)).await? })
    }
}

/// Ends the open turn of a locked thread that no worker can answer any more.
pub(super) async fn end_as_stale(
    context: &Context<'_>,
    thread: &thread::Model,
    id: &str,
) -> Result<(), ToolError> {
    let answer = TurnAnswer {
        state: AnswerState::Failed,
        text: "no answer came within the time that answers are kept".to_owned(),
        error_code: Some(ErrorCode::StaleHandoff.to_string()),
        is_cut: false,
        prompt_tokens: 0,
        completion_tokens: 0,
    };
    end(context, thread, id, answer).await.map(drop)
}

/// Ends a turn of a locked thread; returns whether it was open.
async fn end(
    context: &Context<'_>,
    thread: &thread::Model,
    id: &str,
    answer: TurnAnswer,
) -> Result<bool, ToolError> {
    let ended = turn::ActiveModel {
        state: Set(Some(state_text(answer.state).to_owned())),
        answer: Set(Some(subjects::encode_json_text(&answer))),
        context: Set(None),
        unsent_since: Set(None),
        ended_at: Set(Some(context.now)),
        ..Default::default()
    };
    let updated = turn::Entity::update_many()
        .set(ended)
        .filter(turn::Column::Id.eq(id))
        .filter(turn::Column::State.is_null())
        .exec(&context.db)
        .await?;
    if updated.rows_affected == 0 {
        return Ok(false);
    }
    let is_question = answer.state == AnswerState::Question;
    let mut change = thread::ActiveModel { updated_at: Set(context.now), ..Default::default() };
    if thread.open_turn.as_deref() == Some(id) {
        change.open_turn = Set(None);
        change.open_question = Set(is_question.then(|| id.to_owned()));
    }
    thread::Entity::update_many()
        .set(change)
        .filter(thread::Column::Id.eq(&thread.id))
        .exec(&context.db)
        .await?;
    Ok(true)
}

/// Returns a state as it is stored, in the contract's spelling.
fn state_text(state: AnswerState) -> &'static str {
    match state {
        AnswerState::Completed => "completed",
        AnswerState::Question => "question",
        AnswerState::Failed => "failed",
        AnswerState::Cancelled => "cancelled",
    }
}
