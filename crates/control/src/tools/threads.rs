//! `thread.*`: conversations of users with the project manager. A thread has one open turn at most.
//!
//! Transactions lock in this order: API key, thread, turn, its cancel, its leases.

mod begin;
mod book;
mod cancel;
mod change;
mod end;
mod history;
mod messages;
mod publish;
mod read;
mod requests;
mod resolve;
mod waits;

use contract::thread::{
    BeginTurn, CancelTurn, Delete, EndTurn, Get, GetTurn, LeaveTurn, List, ListMessages, ListUnsent,
    MAX_NAME_BYTES, MarkDelivered, MarkSent, Rename, Thread, Turn, TurnAnswer,
};
use sea_orm::{ColumnTrait, DatabaseExecutor, DbErr, EntityTrait, QueryFilter, QuerySelect};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use subjects::{ChatMessage, HandoffId, streams::ANSWER_RETENTION};
use uuid::Uuid;

pub use self::{
    book::{ThreadBook, ThreadTurn},
    cancel::TurnCanceller,
};
use crate::{Context, Entry, ToolError, arguments::check};
use store::{
    clock,
    entity::{thread, turn},
};

/// Time after the refusal of its handoff until an open turn is abandoned.
const GIVE_UP_AFTER_US: i64 = 60 * 60 * 1_000_000;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<BeginTurn>(),
        Entry::of::<MarkSent>(),
        Entry::of::<ListUnsent>(),
        Entry::of::<EndTurn>(),
        Entry::of::<MarkDelivered>(),
        Entry::of::<LeaveTurn>(),
        Entry::of::<CancelTurn>(),
        Entry::of::<GetTurn>(),
        Entry::of::<List>(),
        Entry::of::<Get>(),
        Entry::of::<ListMessages>(),
        Entry::of::<Rename>(),
        Entry::of::<Delete>(),
    ]
}

/// Finds a thread of a user by its id or by the client's name for it. Another user's is not found.
async fn find(
    db: &DatabaseExecutor<'_>,
    user: &str,
    reference: &str,
) -> Result<Option<thread::Model>, ToolError> {
    check::non_blank("thread", reference, MAX_NAME_BYTES)?;
    let ids = [reference.to_owned(), named_id(user, reference)];
    let found = thread::Entity::find()
        .filter(thread::Column::Id.is_in(ids))
        .filter(thread::Column::UserId.eq(user))
        .all(db)
        .await?;
    let (by_id, by_name): (Vec<_>, Vec<_>) = found.into_iter().partition(|row| row.id == reference);
    Ok(by_id.into_iter().chain(by_name).next())
}

/// Finds a thread like [`find`]; fails if there is none.
async fn get(db: &DatabaseExecutor<'_>, user: &str, reference: &str) -> Result<thread::Model, ToolError> {
    find(db, user, reference).await?.ok_or_else(|| ToolError::not_found("thread", reference))
}

/// Locks a thread until the transaction ends. `None` if it was deleted.
async fn lock(db: &DatabaseExecutor<'_>, id: &str) -> Result<Option<thread::Model>, ToolError> {
    Ok(thread::Entity::find_by_id(id).lock_exclusive().one(db).await?)
}

/// Returns the id of the thread that a user's client calls by this name.
fn named_id(user: &str, name: &str) -> String {
    // An id has no line break, so no two pairs give the same text.
    let digest = Sha256::digest(format!("thread\n{user}\n{name}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// Returns the time before which a turn cannot be answered any more: its handoff is refused.
fn answerable_since(context: &Context<'_>) -> i64 {
    context.now.saturating_sub(i64::try_from(ANSWER_RETENTION.as_micros()).unwrap_or(i64::MAX))
}

/// Returns the time before which an open turn is given up. That is some time before [`answerable_since`]: the
/// last worker may still be at it, and its answer may be stored late.
fn given_up_until(context: &Context<'_>) -> i64 {
    answerable_since(context).saturating_sub(GIVE_UP_AFTER_US)
}

fn new_id() -> String {
    Uuid::now_v7().to_string()
}

fn into_thread(row: thread::Model) -> Result<Thread, ToolError> {
    Ok(Thread {
        open_turn: row.open_turn.as_deref().map(parse_id).transpose()?,
        open_question: row.open_question.as_deref().map(parse_id).transpose()?,
        thread_id: row.id,
        user_id: row.user_id,
        name: row.name,
        title: row.title,
        turns: row.turn_count,
        created_at: clock::text(row.created_at),
        updated_at: clock::text(row.updated_at),
    })
}

fn into_turn(row: turn::Model) -> Result<Turn, ToolError> {
    let mut messages: Vec<ChatMessage> = match &row.context {
        Some(context) => parse("the context of a turn", context)?,
        None => Vec::new(),
    };
    // What the system says in a later turn is in its context already, before what was said earlier.
    let has_context = row.position > 0 && row.state.is_none();
    let is_missing = |message: &ChatMessage| !(has_context && messages::is_system(message));
    messages.extend(messages_of(&row)?.into_iter().filter(is_missing));
    Ok(Turn {
        handoff_id: parse_id(&row.id)?,
        continues: row.continues.as_deref().map(parse_id).transpose()?,
        messages,
        options: parse("the options of a turn", &row.options)?,
        answer: answer_of(&row)?,
        thread_id: row.thread_id,
        user_id: row.user_id,
        key_id: row.key_id,
        position: row.position,
        created_at: clock::text(row.created_at),
        sent_at: row.sent_at.map(clock::text),
        ended_at: row.ended_at.map(clock::text),
    })
}

/// Returns the messages that are new in a turn. What the system says in a later turn than the first is among
/// them if it says something else than before.
fn messages_of(row: &turn::Model) -> Result<Vec<ChatMessage>, ToolError> {
    parse("the messages of a turn", &row.messages)
}

fn answer_of(row: &turn::Model) -> Result<Option<TurnAnswer>, ToolError> {
    row.answer.as_deref().map(|answer| parse("the answer of a turn", answer)).transpose()
}

fn parse_id(text: &str) -> Result<HandoffId, ToolError> {
    text.parse().map_err(|_| ToolError::Store(DbErr::Type(format!("`{text}` is not the id of a turn"))))
}

/// Parses stored JSON.
fn parse<T: DeserializeOwned>(what: &str, json: &str) -> Result<T, ToolError> {
    // Without the parser's message, which may quote what a user said.
    serde_json::from_str(json).map_err(|_| ToolError::Store(DbErr::Type(format!("{what} cannot be read"))))
}
