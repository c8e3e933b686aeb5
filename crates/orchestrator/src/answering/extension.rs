//! Fields that extend OpenAI's objects.

use contract::thread::{AnswerState, Turn, TurnAnswer};
use serde::Serialize;
use subjects::HandoffId;

/// The field `cynode` of completions and responses.
#[derive(Debug, Serialize)]
pub(crate) struct Extension<'a> {
    /// `in_progress`, `completed`, or `question`: the next message of the thread answers it.
    state: &'static str,
    thread_id: &'a str,
    handoff_id: HandoffId,
}

impl<'a> Extension<'a> {
    pub(crate) fn of(turn: &'a Turn, answer: Option<&TurnAnswer>) -> Self {
        Self::new(&turn.thread_id, turn.handoff_id, answer)
    }

    pub(crate) fn new(thread_id: &'a str, handoff_id: HandoffId, answer: Option<&TurnAnswer>) -> Self {
        let state = match answer.map(|answer| answer.state) {
            None => "in_progress",
            Some(AnswerState::Question) => "question",
            Some(AnswerState::Completed) => "completed",
            Some(AnswerState::Failed) => "failed",
            Some(AnswerState::Cancelled) => "cancelled",
        };
        Self { state, thread_id, handoff_id }
    }
}
