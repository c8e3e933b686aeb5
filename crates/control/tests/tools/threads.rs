//! The `thread.*` and `key.*` tools.

mod begin;
mod cancels;
mod console_keys;
mod isolation;
mod life;
mod requests;
mod unnamed;

use contract::{
    ToolContract, arguments,
    thread::{
        AnswerState, BeginOutcome, BeginTurn, BegunTurn, EndTurn, EndedTurn, Turn, TurnAnswer, TurnOptions,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use store::{clock, entity::token};
use subjects::{ChatMessage, ChatRole, HandoffId};

use crate::stage::{Stage, orchestrator};

pub(crate) const HOUR: i64 = 3_600_000_000;

/// An API key as the store has it, valid for an hour.
pub(crate) fn key(id: &str, user: &str) -> token::Model {
    let now = clock::now();
    token::Model {
        id: id.to_owned(),
        hash: format!("{:0>64}", id.len()),
        label: id.to_owned(),
        agent: "user".to_owned(),
        user_id: Some(user.to_owned()),
        task_id: None,
        node: None,
        profile: None,
        is_front_end: false,
        on_disconnect: "continue".to_owned(),
        created_at: now,
        created_by: "admin:test".to_owned(),
        expires_at: now + HOUR,
        revoked_at: None,
    }
}

pub(crate) fn message(role: ChatRole, content: &str) -> ChatMessage {
    ChatMessage { role, content: content.to_owned() }
}

pub(crate) fn user(content: &str) -> ChatMessage {
    message(ChatRole::User, content)
}

pub(crate) fn assistant(content: &str) -> ChatMessage {
    message(ChatRole::Assistant, content)
}

/// A request of Ada with her key `key-ada`.
pub(crate) fn request(messages: Vec<ChatMessage>) -> BeginTurn {
    let body = subjects::encode_json(&messages);
    let body_hash = body.iter().fold(0_u64, |hash, byte| hash.wrapping_mul(31) + u64::from(*byte));
    BeginTurn {
        user_id: "ada".parse().unwrap(),
        key_id: "key-ada".to_owned(),
        thread: None,
        in_new_thread: false,
        request_key: None,
        body_hash: format!("{body_hash:064x}"),
        is_retry: false,
        received_at: None,
        messages,
        options: TurnOptions::default(),
        max_open: None,
        follows: None,
        wait_id: None,
    }
}

/// A request of Ada in a thread that she names.
pub(crate) fn request_in(thread: &str, content: &str) -> BeginTurn {
    BeginTurn { thread: Some(thread.to_owned()), ..request(vec![user(content)]) }
}

/// A store with the keys of Ada and Eve, and that of a front end.
pub(crate) async fn with_keys(stage: &Stage) {
    for row in [
        key("key-ada", "ada"),
        key("key-eve-1", "eve"),
        token::Model { is_front_end: true, ..key("key-front-end", "web") },
    ] {
        stage.given(row).await;
    }
}

/// Calls a tool as an orchestrator.
pub(crate) async fn call<T>(stage: &Stage, input: &T) -> T::Output
where
    T: ToolContract<Output: DeserializeOwned> + Serialize,
{
    let called = stage.call(&orchestrator(), T::NAME, Value::Object(arguments(input))).await;
    let output = called.unwrap_or_else(|error| panic!("{}: {error:?}", T::NAME));
    serde_json::from_value(output).unwrap()
}

/// Code and message of a failure.
pub(crate) async fn fails<T: ToolContract + Serialize>(stage: &Stage, input: &T) -> (String, String) {
    stage.fails_for(&orchestrator(), T::NAME, Value::Object(arguments(input))).await
}

/// Begins a turn, which has to be a new one.
pub(crate) async fn begin(stage: &Stage, request: &BeginTurn) -> Turn {
    let begun: BegunTurn = call(stage, request).await;
    assert_eq!(begun.outcome, BeginOutcome::Begun, "{begun:?}");
    assert!(begun.lease.is_some());
    begun.turn
}

pub(crate) fn answer(state: AnswerState, text: &str) -> TurnAnswer {
    let answer = json!({ "state": state, "text": text, "prompt_tokens": 7, "completion_tokens": 3 });
    serde_json::from_value(answer).unwrap()
}

pub(crate) async fn end_as(stage: &Stage, id: HandoffId, answer: TurnAnswer) -> bool {
    let ended: EndedTurn = call(stage, &EndTurn { handoff_id: id, answer, is_work_over: true }).await;
    ended.ended
}

/// Completes a turn.
pub(crate) async fn complete(stage: &Stage, turn: &Turn, text: &str) {
    assert!(end_as(stage, turn.handoff_id, answer(AnswerState::Completed, text)).await);
}

pub(crate) fn contents(messages: &[ChatMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.content.as_str()).collect()
}
