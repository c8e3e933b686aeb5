//! Converts a completion to the answer that is stored and sent to clients. Pure, so that both are the same.

use contract::thread::{AnswerState, MAX_ANSWER_BYTES, TurnAnswer, character_size};
use secrets::redact_by_kind;
use subjects::{Completion, ErrorCode, FinishReason, Status};

/// Converts a completion. Its text is without secrets, and as long as a thread can store.
pub(crate) fn outcome(completion: Completion) -> TurnAnswer {
    let state = match completion.status {
        Status::Completed => AnswerState::Completed,
        Status::NeedsClarification => AnswerState::Question,
        Status::Failed => AnswerState::Failed,
        Status::Cancelled => AnswerState::Cancelled,
    };
    let (text, error_code) = match (completion.message, completion.error) {
        (_, Some(failure)) => (failure.message, Some(failure.code.as_str().to_owned())),
        (Some(message), None) => (message.content, None),
        (None, None) => (String::new(), None),
    };
    // PostgreSQL stores no NUL.
    let text = if text.contains('\0') { text.replace('\0', "") } else { text };
    let mut text = redact_by_kind(&text).into_owned();
    let is_too_long = cut(&mut text);
    TurnAnswer {
        state,
        text,
        error_code,
        is_cut: is_too_long || completion.finish_reason == FinishReason::Length,
        prompt_tokens: completion.usage.prompt_tokens,
        completion_tokens: completion.usage.completion_tokens,
    }
}

/// Returns the answer of a turn that failed before a worker could work on it.
pub(super) fn failed(code: ErrorCode, text: String) -> TurnAnswer {
    let error_code = Some(code.as_str().to_owned());
    let state = if code == ErrorCode::Cancelled { AnswerState::Cancelled } else { AnswerState::Failed };
    TurnAnswer { state, text, error_code, is_cut: false, prompt_tokens: 0, completion_tokens: 0 }
}

/// Returns the answer of a turn that was cancelled and whose handoff no worker has.
pub(super) fn cancelled() -> TurnAnswer {
    failed(ErrorCode::Cancelled, "cancelled by request".to_owned())
}

/// Cuts a text as the gateway would, so that clients get what is stored. Returns whether anything was
/// cut.
fn cut(text: &mut String) -> bool {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, letter)| {
        used += character_size(letter);
        (used > MAX_ANSWER_BYTES).then_some(at)
    });
    match end {
        Some(end) => text.truncate(end),
        None => return false,
    }
    true
}
