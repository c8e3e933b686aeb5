//! `chat`: a conversation that waits for its next message.

use subjects::{Chat, ChatRole};

use crate::{
    agent::{Outcome, WorkError, session::Session},
    context::request_messages,
};

/// Answers the last user message of the chat.
pub(in crate::agent) async fn work(session: &mut Session<'_>, chat: &Chat) -> Result<Outcome, WorkError> {
    session.set_options(chat.temperature, chat.max_tokens);
    let messages = request_messages(&chat.messages);
    let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
    let goal = last.or(chat.messages.last()).map_or("", |message| message.content.as_str());
    session.converse(goal, messages).await
}
