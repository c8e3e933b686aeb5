//! What was said in a thread before, for requests that do not repeat it.

use contract::thread::{AnswerState, MAX_MESSAGES, MAX_MESSAGES_BYTES, message_size};
use sea_orm::{ColumnTrait, EntityTrait, ExprTrait, QueryFilter, QueryOrder};
use subjects::{ChatMessage, ChatRole};

use super::{answer_of, messages_of};
use crate::{Context, ToolError};
use store::entity::{thread, turn};

/// Earlier turns than these are left out.
const MAX_TURNS: i64 = 200;

/// Returns the messages of a request after those of the thread, without the oldest if they are too large. The
/// system's messages of the first turn are among them, unless the request has its own.
pub(super) async fn put_before(
    context: &Context<'_>,
    thread: &thread::Model,
    request: Vec<ChatMessage>,
) -> Result<Vec<ChatMessage>, ToolError> {
    let position = turn::Column::Position;
    let turns = turn::Entity::find()
        .filter(turn::Column::ThreadId.eq(&thread.id))
        .filter(position.eq(0).or(position.gte(thread.turn_count.saturating_sub(MAX_TURNS))))
        .order_by_asc(position)
        .all(&context.db)
        .await?;
    let mut earlier = Vec::new();
    for row in turns {
        earlier.extend(messages_of(&row)?);
        let answer = answer_of(&row)?;
        let is_said = |state| matches!(state, AnswerState::Completed | AnswerState::Question);
        let answer = answer.filter(|answer| is_said(answer.state));
        earlier.extend(answer.map(|it| ChatMessage { role: ChatRole::Assistant, content: it.text }));
    }
    Ok(combine(earlier, request))
}

fn combine(earlier: Vec<ChatMessage>, mut request: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let Some(last) = request.pop() else { return request };
    let is_system = |message: &ChatMessage| message.role == ChatRole::System;
    let (mut system, said): (Vec<_>, Vec<_>) = earlier.into_iter().partition(is_system);
    let own: usize = request.iter().chain([&last]).map(message_size).sum();
    let mut room = Room { bytes: MAX_MESSAGES_BYTES.saturating_sub(own), count: MAX_MESSAGES - 1 };
    room.count = room.count.saturating_sub(request.len());
    if request.iter().any(is_system) || !system.iter().all(|message| room.takes(message)) {
        system.clear();
    }
    let mut kept: Vec<ChatMessage> = said.into_iter().rev().take_while(|it| room.takes(it)).collect();
    kept.reverse();
    // What an answer was for is gone.
    let answers = kept.iter().take_while(|message| message.role == ChatRole::Assistant).count();
    let kept = kept.into_iter().skip(answers);
    system.into_iter().chain(request).chain(kept).chain([last]).collect()
}

/// What a turn still has room for.
struct Room {
    bytes: usize,
    count: usize,
}

impl Room {
    /// Takes up the room for a message; returns whether there was enough.
    fn takes(&mut self, message: &ChatMessage) -> bool {
        match (self.bytes.checked_sub(message_size(message)), self.count.checked_sub(1)) {
            (Some(bytes), Some(count)) => {
                *self = Self { bytes, count };
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: ChatRole, content: &str) -> ChatMessage {
        ChatMessage { role, content: content.to_owned() }
    }

    fn user(content: &str) -> ChatMessage {
        message(ChatRole::User, content)
    }

    fn assistant(content: &str) -> ChatMessage {
        message(ChatRole::Assistant, content)
    }

    fn contents(messages: &[ChatMessage]) -> Vec<&str> {
        messages.iter().map(|message| message.content.as_str()).collect()
    }

    #[test]
    fn history_comes_before_the_last_message() {
        let earlier = || vec![message(ChatRole::System, "old"), user("1"), assistant("2")];
        assert_eq!(contents(&combine(earlier(), vec![user("3")])), ["old", "1", "2", "3"]);
        let with_system = vec![message(ChatRole::System, "new"), user("3")];
        assert_eq!(contents(&combine(earlier(), with_system)), ["new", "1", "2", "3"]);
        assert_eq!(contents(&combine(Vec::new(), vec![user("3")])), ["3"]);
    }

    #[test]
    fn oldest_messages_are_left_out_when_there_is_no_room() {
        let large = "x".repeat(MAX_MESSAGES_BYTES / 4);
        let earlier = || vec![user("1"), assistant(&large), user("2"), assistant(&large), user(&large)];
        let all = combine(earlier(), vec![user("3")]);
        assert_eq!(contents(&all), ["1", &large, "2", &large, &large, "3"]);
        // Without the first question its answer is left out too.
        let some = combine(earlier(), vec![user(&large)]);
        assert_eq!(contents(&some), ["2", &large, &large, &large]);
        let size: usize = some.iter().map(message_size).sum();
        assert!(size <= MAX_MESSAGES_BYTES, "{size}");
        let many = combine(vec![user("x"); MAX_MESSAGES + 5], vec![user("3")]);
        assert_eq!(many.len(), MAX_MESSAGES);
        let none = combine(earlier(), vec![user(&large.repeat(4)[..MAX_MESSAGES_BYTES - 100])]);
        assert_eq!(none.len(), 1);
    }
}
