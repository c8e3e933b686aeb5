//! What a request refers to: answers of earlier turns, and the response that it follows.
//!
//! A thread is a line of turns, while responses may branch. A request that follows the last response of a
//! thread goes on there; one that follows an earlier response begins a thread of its own, with what was said
//! up to then. The gateway checks again which is the last one when it begins the turn.

use contract::thread::{
    AnswerState, Get, ListMessages, MAX_MESSAGES, MAX_MESSAGES_BYTES, ThreadMessage, Turn, message_size,
};
use futures_util::future::try_join_all;
use subjects::{ChatMessage, ChatRole, HandoffId};

use super::{
    input::{FIELD, InputItem, item_not_found},
    request::{ResponseRequest, previous_not_found},
};
use crate::{
    answering::{Question, Thread, fields::check_bytes, stored},
    caller::Caller,
    error::ApiError,
    gateway::CallError,
    state::App,
};

/// How many answers are looked up at the same time.
const MAX_LOOKUPS: usize = 8;
const PAGE: u64 = 100;

/// Returns what the project manager is asked.
pub(super) async fn question(
    app: &App,
    caller: &Caller,
    request: &ResponseRequest,
) -> Result<Question, ApiError> {
    let messages = messages(app, caller, &request.input).await?;
    let question = Question { messages, ..request.question.clone() };
    match request.previous {
        Some(previous) => follow(app, caller, previous, question).await,
        None => Ok(question),
    }
}

/// Puts answers where they are referred to. Several messages of one stream are one answer. All messages are
/// at most as large as those of a request that repeats them: no more answers are fetched than fit.
async fn messages(app: &App, caller: &Caller, input: &[InputItem]) -> Result<Vec<ChatMessage>, ApiError> {
    let mut items: Vec<&InputItem> = input.iter().collect();
    items.dedup_by(|item, before| match (item, before) {
        (InputItem::Answer { handoff_id, .. }, InputItem::Answer { handoff_id: before, .. }) => {
            handoff_id == before
        }
        _ => false,
    });
    let mut messages = Vec::with_capacity(items.len());
    let mut bytes = 0;
    for items in items.chunks(MAX_LOOKUPS) {
        let found = try_join_all(items.iter().map(|item| message(app, caller, item))).await?;
        bytes += found.iter().map(message_size).sum::<usize>();
        check_bytes(bytes, FIELD).map_err(with_references)?;
        messages.extend(found);
    }
    Ok(messages)
}

fn with_references(mut too_long: ApiError) -> ApiError {
    too_long.message.push_str(" Answers that it refers to are counted as if it repeated them.");
    too_long
}

async fn message(app: &App, caller: &Caller, item: &InputItem) -> Result<ChatMessage, ApiError> {
    match item {
        InputItem::Message(message) => Ok(message.clone()),
        InputItem::Answer { handoff_id, path } => answer(app, caller, *handoff_id, path).await,
    }
}

async fn answer(app: &App, caller: &Caller, id: HandoffId, path: &str) -> Result<ChatMessage, ApiError> {
    let turn = stored::find(app, caller, id).await?;
    let answer = turn.and_then(|turn| turn.answer).filter(|answer| is_said(answer.state));
    let answer = answer.ok_or_else(|| item_not_found(path))?;
    Ok(ChatMessage { role: ChatRole::Assistant, content: answer.text })
}

fn is_said(state: AnswerState) -> bool {
    matches!(state, AnswerState::Completed | AnswerState::Question)
}

/// Asks after an earlier response.
async fn follow(
    app: &App,
    caller: &Caller,
    previous: HandoffId,
    mut question: Question,
) -> Result<Question, ApiError> {
    let turn = stored::find(app, caller, previous).await?.ok_or_else(previous_not_found)?;
    let get = Get { user_id: caller.user.clone(), thread: turn.thread_id.clone() };
    let thread = app.gateway.call(&get).await.map_err(not_found)?;
    let is_last = turn.position + 1 == thread.turns;
    // The gateway puts what was said before the only message of a user.
    if !is_last || !has_one_message(&question.messages) {
        let earlier = history(app, caller, &turn).await?;
        question.messages = combine(earlier, question.messages);
    }
    question.thread = match is_last {
        true => Thread::After { thread: turn.thread_id, turn: previous },
        false => Thread::New,
    };
    Ok(question)
}

fn not_found(error: CallError) -> ApiError {
    match error {
        CallError::Failed { code, .. } if code == "not_found" => previous_not_found(),
        error => error.into_api_error(),
    }
}

fn has_one_message(messages: &[ChatMessage]) -> bool {
    messages.split_last().is_some_and(|(_, rest)| rest.iter().all(|it| it.role == ChatRole::System))
}

/// Returns what was said in a thread up to a turn, without the oldest if it is very much. What the system
/// said last is first.
async fn history(app: &App, caller: &Caller, last: &Turn) -> Result<Vec<ChatMessage>, ApiError> {
    let mut instructions = Instructions::default();
    let mut said: Vec<ChatMessage> = Vec::new();
    let (mut cursor, mut is_reached) = (None, false);
    loop {
        let (user_id, thread) = (caller.user.clone(), last.thread_id.clone());
        let list = ListMessages { user_id, thread, limit: Some(PAGE), cursor };
        let page = app.gateway.call(&list).await.map_err(not_found)?;
        for message in page.items {
            let is_of_last = message.handoff_id == last.handoff_id;
            if is_reached && !is_of_last {
                return Ok(instructions.before(said));
            }
            is_reached |= is_of_last;
            if message.role == ChatRole::System {
                instructions.add(message);
            } else if message.state.is_none_or(is_said) {
                said.push(ChatMessage { role: message.role, content: message.content });
            }
        }
        drop_oldest(&mut said);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(instructions.before(said));
        }
    }
}

/// Drops the oldest messages that [`combine`] has no room for.
fn drop_oldest(said: &mut Vec<ChatMessage>) {
    let mut bytes = 0;
    let fits = |message: &&ChatMessage| {
        bytes += message_size(message);
        bytes <= MAX_MESSAGES_BYTES
    };
    let kept = said.iter().rev().take(MAX_MESSAGES).take_while(fits).count();
    said.drain(..said.len() - kept);
}

/// The system messages of the last turn that has any.
#[derive(Debug, Default)]
struct Instructions {
    of: Option<HandoffId>,
    messages: Vec<ChatMessage>,
}

impl Instructions {
    fn add(&mut self, message: ThreadMessage) {
        if self.of != Some(message.handoff_id) {
            self.of = Some(message.handoff_id);
            self.messages.clear();
        }
        self.messages.push(ChatMessage { role: message.role, content: message.content });
    }

    fn before(mut self, said: Vec<ChatMessage>) -> Vec<ChatMessage> {
        self.messages.extend(said);
        self.messages
    }
}

/// Puts what was said before a request, without the oldest if there is no room. What the system said is left
/// out if the request has instructions of its own.
fn combine(earlier: Vec<ChatMessage>, request: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let is_system = |message: &ChatMessage| message.role == ChatRole::System;
    let (own, request): (Vec<_>, Vec<_>) = request.into_iter().partition(is_system);
    let (system, said): (Vec<_>, Vec<_>) = earlier.into_iter().partition(is_system);
    let system = if own.is_empty() { system } else { own };
    let mut bytes: usize = system.iter().chain(&request).map(message_size).sum();
    let mut count = system.len() + request.len();
    let has_room = |message: &ChatMessage| {
        bytes += message_size(message);
        count += 1;
        bytes <= MAX_MESSAGES_BYTES && count <= MAX_MESSAGES
    };
    let mut kept: Vec<ChatMessage> = said.into_iter().rev().take_while(has_room).collect();
    kept.reverse();
    // What an answer was for is gone.
    let answers = kept.iter().take_while(|message| message.role == ChatRole::Assistant).count();
    system.into_iter().chain(kept.into_iter().skip(answers)).chain(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(messages: &[(ChatRole, &str)]) -> Vec<ChatMessage> {
        messages.iter().map(|(role, text)| ChatMessage { role: *role, content: (*text).to_owned() }).collect()
    }

    fn contents(messages: &[ChatMessage]) -> Vec<&str> {
        messages.iter().map(|message| message.content.as_str()).collect()
    }

    #[test]
    fn history_comes_before_the_request_and_after_instructions() {
        use ChatRole::{Assistant, System, User};
        let earlier = || said(&[(System, "old"), (User, "1"), (Assistant, "2")]);
        assert_eq!(contents(&combine(earlier(), said(&[(User, "3")]))), ["old", "1", "2", "3"]);
        let request = said(&[(System, "new"), (User, "3"), (User, "4")]);
        assert_eq!(contents(&combine(earlier(), request)), ["new", "1", "2", "3", "4"]);
        let large = "x".repeat(MAX_MESSAGES_BYTES / 2);
        let request = said(&[(User, &large)]);
        let earlier = said(&[(User, &large), (Assistant, "2"), (User, "3"), (Assistant, "4")]);
        assert_eq!(contents(&combine(earlier, request)), ["3", "4", &large]);
        // Line breaks count twice, as they do for the gateway.
        let lines = "\n".repeat(MAX_MESSAGES_BYTES / 4);
        let (request, earlier) = (said(&[(User, &lines)]), said(&[(User, &lines)]));
        assert_eq!(contents(&combine(earlier, request)), [&lines]);
    }

    #[test]
    fn messages_without_room_are_dropped_while_they_are_read() {
        use ChatRole::{Assistant, User};
        let large = "x".repeat(MAX_MESSAGES_BYTES / 2);
        let mut some =
            said(&[(User, "1"), (Assistant, &large), (User, "2"), (Assistant, &large), (User, "3")]);
        drop_oldest(&mut some);
        assert_eq!(contents(&some), ["2", &large, "3"]);
        let mut many = said(&[(User, "x"); MAX_MESSAGES + 5]);
        drop_oldest(&mut many);
        assert_eq!(many.len(), MAX_MESSAGES);
    }

    #[test]
    fn last_instructions_hold() {
        let of = |number: u8, content: &str| ThreadMessage {
            handoff_id: format!("0193f2c0-5a00-7000-8000-00000000000{number}").parse().unwrap(),
            role: ChatRole::System,
            content: content.to_owned(),
            state: None,
            created_at: String::new(),
        };
        let mut instructions = Instructions::default();
        for message in [of(1, "old"), of(1, "older"), of(2, "new"), of(2, "newer")] {
            instructions.add(message);
        }
        let all = instructions.before(said(&[(ChatRole::User, "1")]));
        assert_eq!(contents(&all), ["new", "newer", "1"]);
    }
}
