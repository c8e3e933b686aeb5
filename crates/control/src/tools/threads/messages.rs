//! The messages of a request: what they may be, what is new in them, and how the requests of one conversation
//! are recognised. Pure.

use contract::thread::{
    MAX_ANSWER_BYTES, MAX_MESSAGES, MAX_MESSAGES_BYTES, TurnAnswer, character_size, message_size,
};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::{ChatMessage, ChatRole};

use crate::{ToolError, arguments::check};

const TITLE_CHARS: usize = 80;
const NO_TITLE: &str = "untitled";

/// Checks the messages of a request, and removes secrets that the orchestrator has overlooked.
pub(super) fn checked(messages: Vec<ChatMessage>) -> Result<Vec<ChatMessage>, ToolError> {
    check::count("messages", messages.len(), MAX_MESSAGES)?;
    if messages.last().is_none_or(|last| last.role != ChatRole::User) {
        return Err(ToolError::Invalid("the last message must be the user's".to_owned()));
    }
    let messages: Vec<ChatMessage> = messages.into_iter().map(without_secrets).collect();
    let size = messages.iter().map(message_size).sum();
    if size > MAX_MESSAGES_BYTES {
        return Err(ToolError::TooLarge {
            what: "the list of messages, as JSON,",
            size,
            limit: MAX_MESSAGES_BYTES,
        });
    }
    Ok(messages)
}

/// Cuts an answer that is too long, and removes secrets from it.
pub(super) fn checked_answer(mut answer: TurnAnswer) -> TurnAnswer {
    answer.text = redact_if_secret(answer.text);
    answer.is_cut |= cut(&mut answer.text, MAX_ANSWER_BYTES);
    answer
}

/// Replaces a message that contains a secret. All others stay as they are: [`secrets::redact`] also replaces
/// what only looks like one, and is not for conversations.
fn without_secrets(message: ChatMessage) -> ChatMessage {
    ChatMessage { content: redact_if_secret(message.content), ..message }
}

fn redact_if_secret(text: String) -> String {
    match secrets::find(&text) {
        Some(_) => secrets::redact(&text).into_owned(),
        None => text,
    }
}

/// Cuts a text to `limit` bytes as JSON. Returns whether anything was cut.
fn cut(text: &mut String, limit: usize) -> bool {
    let mut used = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        used += character_size(c);
        (used > limit).then_some(at)
    });
    match end {
        Some(end) => {
            text.truncate(end);
            true
        }
        None => false,
    }
}

/// Returns the title of a thread that begins with these messages.
pub(super) fn title(messages: &[ChatMessage]) -> String {
    let first = messages.iter().find(|message| message.role == ChatRole::User);
    let words: Vec<&str> = first.map_or("", |first| &first.content).split_whitespace().collect();
    let title: String = words.join(" ").chars().filter(|c| !c.is_control()).take(TITLE_CHARS).collect();
    if title.is_empty() { NO_TITLE.to_owned() } else { title }
}

pub(super) fn is_system(message: &ChatMessage) -> bool {
    message.role == ChatRole::System
}

/// Returns the instructions of a request: all that the system says in it.
pub(super) fn instructions(messages: &[ChatMessage]) -> Vec<ChatMessage> {
    messages.iter().filter(|message| is_system(message)).cloned().collect()
}

/// Returns how many messages of the user there are.
pub(super) fn count_of_user(messages: &[ChatMessage]) -> usize {
    messages.iter().filter(|message| message.role == ChatRole::User).count()
}

/// Returns the hash of what system and user say in these messages. Answers are left out: clients shorten them
/// and change their form.
pub(super) fn history_hash(messages: &[ChatMessage]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        let role: u8 = match message.role {
            ChatRole::System => b's',
            ChatRole::User => b'u',
            ChatRole::Assistant => continue,
        };
        hash.update([role]);
        hash.update((message.content.len() as u64).to_le_bytes());
        hash.update(&message.content);
    }
    HEXLOWER.encode(&hash.finalize())
}

/// Returns the hash by which a request finds the thread that it continues: that of everything before its last
/// message. `None` if the user says nothing there.
pub(super) fn hash_before_last(messages: &[ChatMessage]) -> Option<String> {
    let (_, before) = messages.split_last()?;
    (count_of_user(before) > 0).then(|| history_hash(before))
}

/// Returns how many of the last messages are new in a request that continues a thread: what the user said
/// since the last answer, without what was new in the turn before, which may have had no answer.
pub(super) fn count_of_new(messages: &[ChatMessage], turn_before: &[ChatMessage]) -> usize {
    let said = messages.iter().rev().take_while(|message| message.role == ChatRole::User).count();
    let said = said.max(1);
    let run = messages.len() - said;
    let is_known = |message: &ChatMessage| Some(message) == turn_before.last();
    // The last message is new, also if the user repeats it.
    let before_last = &messages[run..messages.len() - 1];
    before_last.iter().rposition(is_known).map_or(said, |known| said - known - 1)
}

#[cfg(test)]
mod tests;
