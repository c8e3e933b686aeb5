//! `chat`: a conversation that waits for its next message.

use subjects::{Chat, ChatRole};

use crate::{
    agent::{Outcome, WorkError, session::Session},
    context::request_messages,
};

/// Answers the last user message of the chat.
pub(in crate::agent) async fn work(session: &mut Session<'_>, chat: &Chat) -> Result<Outcome, WorkError> {
    session.temperature = chat.temperature.unwrap_or(session.temperature);
    session.is_default_temperature = chat.temperature.is_none();
    session.max_tokens = chat.max_tokens.map(std::num::NonZeroU32::get);
    let messages = request_messages(&chat.messages);
    let last = chat.messages.iter().rev().find(|message| message.role == ChatRole::User);
    let goal = last.or(chat.messages.last()).map_or("", |message| message.content.as_str());
    session.converse(goal, messages).await
}
