//! What was said in a thread before, for requests that do not repeat it.

use contract::thread::{AnswerState, MAX_MESSAGES, MAX_MESSAGES_BYTES, message_size};
use sea_orm::{ColumnTrait, EntityTrait, ExprTrait, QueryFilter, QueryOrder};
use subjects::{ChatMessage, ChatRole};

use super::{
    answer_of,
    messages::{self, is_system},
    messages_of,
};
use crate::{Context, ToolError};
use store::entity::{thread, turn};

/// Earlier turns than these are left out.
const MAX_TURNS: i64 = 200;

/// The contents of a thread at the beginning of its next turn.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The latest system message.
    instructions: Vec<ChatMessage>,
    /// Whether the next turn is the last one that finds the instructions where they are.
    is_last_to_find: bool,
    /// Messages of the user and the answers to them, oldest first.
    said: Vec<ChatMessage>,
}

impl History {
    /// Reads the first turn of a thread and its last ones.
    pub(super) async fn read(context: &Context<'_>, thread: &thread::Model) -> Result<Self, ToolError> {
        let position = turn::Column::Position;
        let first_read = thread.turn_count.saturating_sub(MAX_TURNS);
        let turns = turn::Entity::find()
            .filter(turn::Column::ThreadId.eq(&thread.id))
            .filter(position.eq(0).or(position.gte(first_read)))
            .order_by_asc(position)
            .all(&context.db)
            .await?;
        let mut history = Self::default();
        for row in turns {
            let (instructions, said): (Vec<_>, Vec<_>) = messages_of(&row)?.into_iter().partition(is_system);
            if !instructions.is_empty() {
                history.instructions = instructions;
                history.is_last_to_find = row.position > 0 && row.position == first_read;
            }
            history.said.extend(said);
            let answer = answer_of(&row)?;
            let is_said = |state| matches!(state, AnswerState::Completed | AnswerState::Question);
            let answer = answer.filter(|answer| is_said(answer.state));
            history.said.extend(answer.map(|it| ChatMessage { role: ChatRole::Assistant, content: it.text }));
        }
        Ok(history)
    }

    /// Returns the instructions that are to be stored with a request: its own if they are others than before,
    /// or those of earlier that would be out of reach of the next turn.
    pub(super) fn new_instructions(&self, request: &[ChatMessage]) -> Vec<ChatMessage> {
        let own = messages::instructions(request);
        if self.is_last_to_find {
            return if own.is_empty() { self.instructions.clone() } else { own };
        }
        if own == self.instructions { Vec::new() } else { own }
    }

    /// Returns the messages of a request after those of the thread, without the oldest if they are too large.
    /// The instructions of earlier are among them, unless the request has its own.
    pub(super) fn put_before(self, mut request: Vec<ChatMessage>) -> Vec<ChatMessage> {
        let Self { mut instructions, said, .. } = self;
        let Some(last) = request.pop() else { return request };
        let own: usize = request.iter().chain([&last]).map(message_size).sum();
        let mut room = Room { bytes: MAX_MESSAGES_BYTES.saturating_sub(own), count: MAX_MESSAGES - 1 };
        room.count = room.count.saturating_sub(request.len());
        if request.iter().any(is_system) || !instructions.iter().all(|message| room.reserve(message)) {
            instructions.clear();
        }
        let mut kept: Vec<ChatMessage> = said.into_iter().rev().take_while(|it| room.reserve(it)).collect();
        kept.reverse();
        // What an answer was for is gone.
        let answers = kept.iter().take_while(|message| message.role == ChatRole::Assistant).count();
        let kept = kept.into_iter().skip(answers);
        instructions.into_iter().chain(request).chain(kept).chain([last]).collect()
    }
}

/// The remaining size of a turn.
struct Room {
    bytes: usize,
    count: usize,
}

impl Room {
    /// Reserves the room for a message. Returns whether there was enough.
    fn reserve(&mut self, message: &ChatMessage) -> bool {
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

    fn system(content: &str) -> ChatMessage {
        message(ChatRole::System, content)
    }

    fn combine(earlier: Vec<ChatMessage>, request: Vec<ChatMessage>) -> Vec<ChatMessage> {
        let (instructions, said) = earlier.into_iter().partition(is_system);
        History { instructions, said, ..History::default() }.put_before(request)
    }

    #[test]
    fn instructions_are_new_if_they_are_others_or_soon_out_of_reach() {
        let history =
            |is_last_to_find| History { instructions: vec![system("a")], is_last_to_find, said: Vec::new() };
        let new = |is_last, request: Vec<ChatMessage>| history(is_last).new_instructions(&request);
        assert_eq!(new(false, vec![user("1")]), []);
        assert_eq!(new(false, vec![system("a"), user("1")]), []);
        assert_eq!(contents(&new(false, vec![system("b"), user("1")])), ["b"]);
        assert_eq!(contents(&new(true, vec![user("1")])), ["a"]);
        assert_eq!(contents(&new(true, vec![system("a"), user("1")])), ["a"]);
        assert_eq!(contents(&new(true, vec![system("b"), user("1")])), ["b"]);
    }

    #[test]
    fn history_comes_before_the_last_message() {
        let earlier = || vec![system("old"), user("1"), assistant("2")];
        assert_eq!(contents(&combine(earlier(), vec![user("3")])), ["old", "1", "2", "3"]);
        let with_system = vec![system("new"), user("3")];
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
