//! Finds the thread that a request continues, or creates one.

use contract::thread::MAX_NAME_BYTES;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use subjects::{ChatMessage, ChatRole};

use super::{answer_of, find, lock, messages, named_id};
use crate::{Context, ToolError, arguments::check};
use store::entity::{thread, turn};

/// How many threads with the same history are compared with a request.
const MAX_CANDIDATES: u64 = 8;

/// The thread of a request, locked until the transaction ends.
pub(super) enum Target {
    Existing(thread::Model),
    /// Created in this transaction, with the request as its first turn.
    Created(thread::Model),
}

impl Target {
    pub(super) fn thread(&self) -> &thread::Model {
        match self {
            Self::Existing(thread) | Self::Created(thread) => thread,
        }
    }
}

/// Returns the thread that is named, or whose history the request repeats, or a new one. `new` is the row of
/// a new thread without a name.
pub(super) async fn resolve(
    context: &Context<'_>,
    reference: Option<&str>,
    messages: &[ChatMessage],
    new: thread::Model,
) -> Result<Target, ToolError> {
    match reference {
        Some(reference) => named(context, reference, new).await,
        None => match with_same_history(context, &new.user_id, messages).await? {
            Some(thread) => Ok(Target::Existing(thread)),
            None => {
                insert(context, &new).await?;
                Ok(Target::Created(new))
            }
        },
    }
}

async fn named(context: &Context<'_>, reference: &str, mut new: thread::Model) -> Result<Target, ToolError> {
    check::non_blank("thread", reference, MAX_NAME_BYTES)?;
    if let Some(found) = find(&context.db, &new.user_id, reference).await?
        && let Some(thread) = lock(&context.db, &found.id).await?
    {
        return Ok(Target::Existing(thread));
    }
    new.id = named_id(&new.user_id, reference);
    new.name = Some(reference.to_owned());
    if insert(context, &new).await? {
        return Ok(Target::Created(new));
    }
    // Another request created it meanwhile; the insert has waited for its commit.
    match lock(&context.db, &new.id).await? {
        Some(thread) => Ok(Target::Existing(thread)),
        None => Err(ToolError::Conflict("the thread was deleted meanwhile; try again".to_owned())),
    }
}

/// Inserts a thread, unless there is one with its id.
async fn insert(context: &Context<'_>, row: &thread::Model) -> Result<bool, ToolError> {
    let insert = thread::Entity::insert(thread::ActiveModel::from(row.clone()))
        .on_conflict_do_nothing_on([thread::Column::Id]);
    Ok(check::was_inserted(&insert.exec_without_returning(&context.db).await?))
}

/// Returns the user's thread of which the request repeats the history: the one whose last answer it also
/// repeats, otherwise the one changed last. `None` if it has gone on since, so that the request branches off.
async fn with_same_history(
    context: &Context<'_>,
    user: &str,
    messages: &[ChatMessage],
) -> Result<Option<thread::Model>, ToolError> {
    let Some(hash) = messages::hash_before_last(messages) else { return Ok(None) };
    let mut candidates = thread::Entity::find()
        .filter(thread::Column::UserId.eq(user))
        .filter(thread::Column::HistoryHash.eq(&hash))
        .order_by_desc(thread::Column::UpdatedAt)
        .limit(MAX_CANDIDATES)
        .all(&context.db)
        .await?;
    if candidates.is_empty() {
        return Ok(None);
    }
    let chosen = match candidates.len() {
        1 => 0,
        _ => with_same_answer(context, &candidates, messages).await?.unwrap_or(0),
    };
    let locked = lock(&context.db, &candidates.swap_remove(chosen).id).await?;
    Ok(locked.filter(|thread| thread.history_hash == hash))
}

async fn with_same_answer(
    context: &Context<'_>,
    candidates: &[thread::Model],
    messages: &[ChatMessage],
) -> Result<Option<usize>, ToolError> {
    let repeated = messages.iter().rev().find(|message| message.role == ChatRole::Assistant);
    let Some(repeated) = repeated.map(|message| message.content.trim()) else { return Ok(None) };
    for (at, thread) in candidates.iter().enumerate() {
        let last = turn::Entity::find()
            .filter(turn::Column::ThreadId.eq(&thread.id))
            .filter(turn::Column::Position.eq(thread.turn_count - 1));
        let answer = match last.one(&context.db).await? {
            Some(last) => answer_of(&last)?,
            None => None,
        };
        if answer.is_some_and(|answer| answer.text.trim() == repeated) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
