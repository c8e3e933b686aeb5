//! Finds the thread that a request continues, or creates one.

use contract::thread::{BeginTurn, MAX_NAME_BYTES};
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
    input: &BeginTurn,
    messages: &[ChatMessage],
    new: thread::Model,
) -> Result<Target, ToolError> {
    if let Some(reference) = &input.thread {
        return named(context, reference, new).await;
    }
    if !input.in_new_thread
        && let Some(thread) = with_same_history(context, &new.user_id, messages).await?
    {
        return Ok(Target::Existing(thread));
    }
    insert(context, &new).await?;
    Ok(Target::Created(new))
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
///
/// Clients change the form of answers, so an answer that is not repeated excludes no thread. A question does:
/// what the user says after another text must not answer it.
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
    let repeated = with_same_answer(context, &candidates, messages).await?;
    let chosen = repeated.or_else(|| candidates.iter().position(|thread| thread.open_question.is_none()));
    let Some(chosen) = chosen.map(|at| candidates.swap_remove(at)) else { return Ok(None) };
    let locked = lock(&context.db, &chosen.id).await?;
    let is_same = |thread: &thread::Model| {
        thread.history_hash == chosen.history_hash && thread.open_question == chosen.open_question
    };
    Ok(locked.filter(is_same))
}

/// Returns the thread whose last answer the request repeats, the longest of several. Before the answer there
/// may be what the manager said while it worked: streams send that as content, too.
async fn with_same_answer(
    context: &Context<'_>,
    candidates: &[thread::Model],
    messages: &[ChatMessage],
) -> Result<Option<usize>, ToolError> {
    let repeated = messages.iter().rev().find(|message| message.role == ChatRole::Assistant);
    let Some(repeated) = repeated.map(|message| message.content.trim()) else { return Ok(None) };
    let (mut found, mut longest) = (None, 0);
    for (at, thread) in candidates.iter().enumerate() {
        let last = turn::Entity::find()
            .filter(turn::Column::ThreadId.eq(&thread.id))
            .filter(turn::Column::Position.eq(thread.turn_count - 1));
        let answer = match last.one(&context.db).await? {
            Some(last) => answer_of(&last)?,
            None => None,
        };
        let Some(answer) = answer else { continue };
        let text = answer.text.trim();
        if text.len() > longest && repeated.ends_with(text) {
            (found, longest) = (Some(at), text.len());
        }
    }
    Ok(found)
}
