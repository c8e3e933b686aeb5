//! The objects that clients read.

use contract::thread::{AnswerState, Thread, ThreadMessage};
use serde::Serialize;
use subjects::{ChatRole, Timestamp};

#[derive(Debug, Serialize)]
pub(super) struct ListObject<T> {
    object: &'static str,
    data: Vec<T>,
    has_more: bool,
    /// Give this as `after` to get the next piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ThreadObject {
    pub(super) id: String,
    object: &'static str,
    /// The name that the client gave it, if any.
    name: Option<String>,
    pub(super) title: String,
    turns: i64,
    /// The completion that is worked on.
    in_progress: Option<String>,
    /// The completion that asks a question, which the next message answers.
    question: Option<String>,
    /// Unix times.
    pub(super) created_at: i64,
    updated_at: i64,
}

#[derive(Debug, Serialize)]
pub(super) struct MessageObject {
    object: &'static str,
    /// The completion that the message belongs to.
    completion_id: String,
    pub(super) role: ChatRole,
    pub(super) content: String,
    /// Of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<AnswerState>,
    created_at: i64,
}

impl<T> ListObject<T> {
    pub(super) fn new(data: Vec<T>, next: Option<String>) -> Self {
        Self { object: "list", data, has_more: next.is_some(), next }
    }
}

impl From<Thread> for ThreadObject {
    fn from(thread: Thread) -> Self {
        let completion = |id| format!("chatcmpl-{id}");
        Self {
            id: thread.thread_id,
            object: "thread",
            name: thread.name,
            title: thread.title,
            turns: thread.turns,
            in_progress: thread.open_turn.map(completion),
            question: thread.open_question.map(completion),
            created_at: unix(&thread.created_at),
            updated_at: unix(&thread.updated_at),
        }
    }
}

impl From<ThreadMessage> for MessageObject {
    fn from(message: ThreadMessage) -> Self {
        Self {
            object: "thread.message",
            completion_id: format!("chatcmpl-{}", message.handoff_id),
            role: message.role,
            content: message.content,
            state: message.state,
            created_at: unix(&message.created_at),
        }
    }
}

fn unix(text: &str) -> i64 {
    text.parse::<Timestamp>().map_or(0, |time| time.at().unix_timestamp())
}
