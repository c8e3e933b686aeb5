//! `thread.turn.end`: stores the answer of a turn, once.

use contract::thread::{AnswerState, EndTurn, EndedTurn, MAX_UNSENT, TurnAnswer};
use policy::Scope;
use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    sea_query::{LockBehavior, LockType},
};
use subjects::ErrorCode;

use super::{cancel, given_up_until, lock, messages::checked_answer};
use crate::{BuiltInTool, Context, Does, JobBook, ToolError};
use store::entity::{thread, turn};

impl BuiltInTool for EndTurn {
    const TITLE: &'static str = "End a turn";
    const DESCRIPTION: &'static str = "Stores the answer of a turn, after which its thread takes the next \
        request, and gives back the leases of its handoff unless that failed. Jobs of one that was cancelled \
        end. A turn that has an answer keeps it. If a worker may still have the turn, it is cancelled too.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<EndedTurn, ToolError> {
        let id = input.handoff_id.to_string();
        let found = turn::Entity::find_by_id(&id).one(&context.db).await?;
        let thread = match found.filter(|found| found.state.is_none()) {
            // `None`: deleted meanwhile, with its turns.
            Some(found) => lock(&context.db, &found.thread_id).await?,
            None => None,
        };
        let ended = match thread {
            Some(thread) => {
                let mut answer = checked_answer(input.answer);
                // It failed since it was cancelled, such as when its lease was refused.
                if answer.state == AnswerState::Failed && cancel::is_cancelled(context, &id).await? {
                    answer.end_as_cancelled();
                }
                if !input.is_work_over {
                    // Before its end: what has ended is not cancelled.
                    cancel::cancel(context, &id).await?;
                }
                // A failure may be replayed, under its lease.
                let is_over = input.is_work_over && answer.state != AnswerState::Failed;
                let is_cancelled = answer.state == AnswerState::Cancelled;
                let ended = end(context, &thread, &id, answer).await?;
                if ended && is_over {
                    let (db, now, by) = (&context.db, context.now, context.author());
                    context.leases.give_back_of_handoff(db, &id, now, &by).await?;
                    if is_cancelled {
                        JobBook::new(db, context.sandboxes, now).cancel_of_handoff(&id, &by).await?;
                    }
                }
                ended
            }
            None => false,
        };
        // After the turn, which is locked first wherever a cancel is stored.
        if input.is_work_over {
            cancel::forget(context, &id).await?;
        }
        Ok(EndedTurn { ended })
    }
}

/// Returns the answer of a turn that no worker answers.
pub(super) fn without_work(state: AnswerState, code: ErrorCode, text: String) -> TurnAnswer {
    let error_code = Some(code.to_string());
    TurnAnswer { state, text, error_code, is_cut: false, prompt_tokens: 0, completion_tokens: 0 }
}

/// Ends the open turn of a locked thread that no worker can answer any more.
pub(super) async fn end_as_stale(
    context: &Context<'_>,
    thread: &thread::Model,
    id: &str,
) -> Result<(), ToolError> {
    end(context, thread, id, stale()).await.map(drop)
}

fn stale() -> TurnAnswer {
    let text = "no answer came within the time that answers are kept".to_owned();
    without_work(AnswerState::Failed, ErrorCode::StaleHandoff, text)
}

/// Ends open turns that are given up, the oldest first, as many as are listed at once. One whose thread is
/// being changed is left to the next call.
pub(super) async fn end_overdue(context: &Context<'_>) -> Result<(), ToolError> {
    let overdue = turn::Entity::find()
        // Every open turn has it. With the index on it, those that have ended are not read.
        .filter(turn::Column::UnsentSince.is_not_null())
        .filter(turn::Column::State.is_null())
        .filter(turn::Column::CreatedAt.lte(given_up_until(context)))
        .order_by_asc(turn::Column::CreatedAt)
        .limit(MAX_UNSENT)
        .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
        .all(&context.db)
        .await?;
    let cancelled = cancel::cancelled_among(context, &overdue).await?;
    for row in &overdue {
        let mut answer = stale();
        if cancelled.contains(&row.id) {
            answer.end_as_cancelled();
        }
        end_of_locked_turn(context, row, answer).await?;
    }
    Ok(())
}

/// Ends an open turn for which no lease is issued, so that no manager may work on it. Its row has to be
/// locked. Returns whether it is ended; not now if its thread is being changed.
pub(super) async fn end_as_refused(
    context: &Context<'_>,
    row: &turn::Model,
    why: &ToolError,
) -> Result<bool, ToolError> {
    let code = match why {
        // Its project is another user's, such as after it was given away.
        ToolError::Invalid(_) => ErrorCode::ScopeMismatch,
        _ => ErrorCode::Internal,
    };
    let text = format!("no project manager may work on it: {why}");
    end_of_locked_turn(context, row, without_work(AnswerState::Failed, code, text)).await
}

/// Ends a turn whose row is locked. Returns false if its thread is locked by another transaction, which may
/// wait for the turn.
pub(super) async fn end_of_locked_turn(
    context: &Context<'_>,
    row: &turn::Model,
    answer: TurnAnswer,
) -> Result<bool, ToolError> {
    let thread = thread::Entity::find_by_id(&row.thread_id)
        .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
        .one(&context.db)
        .await?;
    match thread {
        Some(thread) => end(context, &thread, &row.id, answer).await,
        None => Ok(false),
    }
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
