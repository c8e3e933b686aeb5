//! The threads of one user, as people read and change them. Tools and pages change threads through
//! [`ThreadBook`] alone.

use contract::thread::{Deleted, MAX_TITLE_BYTES, Thread, TurnAnswer};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use store::entity::{thread, turn};
use subjects::{ChatMessage, HandoffId};

use super::{TurnCanceller, answer_of, get, into_thread, lock, messages_of, parse_id};
use crate::{ToolError, arguments::check};

/// A piece of a thread ends after this many bytes, but has at least one turn.
const MAX_PIECE_BYTES: usize = 1 << 20;

/// Reads and changes the threads of one user, within a transaction.
#[derive(Debug)]
pub struct ThreadBook<'w> {
    db: &'w DatabaseExecutor<'w>,
    user: &'w str,
}

/// One request in a thread, and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTurn {
    pub handoff_id: HandoffId,
    /// Counted from 0 within the thread.
    pub position: i64,
    /// What was new in it. The last message is the user's.
    pub messages: Vec<ChatMessage>,
    /// Absent while the turn is open.
    pub answer: Option<TurnAnswer>,
    /// Microseconds since 1970.
    pub created_at: i64,
    pub ended_at: Option<i64>,
}

impl<'w> ThreadBook<'w> {
    pub fn new(db: &'w DatabaseExecutor<'w>, user: &'w str) -> Self {
        Self { db, user }
    }

    /// Lists threads, the last changed first.
    pub async fn list(&self, offset: u64, limit: u64) -> Result<Vec<Thread>, ToolError> {
        let found = thread::Entity::find()
            .filter(thread::Column::UserId.eq(self.user))
            .order_by_desc(thread::Column::UpdatedAt)
            .order_by_desc(thread::Column::Id)
            .offset(offset)
            .limit(limit)
            .all(self.db)
            .await?;
        found.into_iter().map(into_thread).collect()
    }

    /// Returns a thread, by its id or by the client's name for it.
    pub async fn get(&self, reference: &str) -> Result<Thread, ToolError> {
        into_thread(get(self.db, self.user, reference).await?)
    }

    /// Returns the last `limit` turns before the position `before`, or the last ones of all, the oldest
    /// first. There are fewer if they are large.
    pub async fn turns_before(
        &self,
        reference: &str,
        before: Option<i64>,
        limit: u64,
    ) -> Result<Vec<ThreadTurn>, ToolError> {
        let thread = get(self.db, self.user, reference).await?;
        let found = turn::Entity::find()
            .filter(turn::Column::ThreadId.eq(&thread.id))
            .filter(turn::Column::Position.lt(before.unwrap_or(i64::MAX)))
            .order_by_desc(turn::Column::Position)
            .limit(limit)
            .all(self.db)
            .await?;
        let mut turns = in_one_piece(found)?;
        turns.reverse();
        Ok(turns)
    }

    /// Returns the first `limit` turns from the position `from` on. There are fewer if they are large.
    pub async fn turns_from(
        &self,
        reference: &str,
        from: i64,
        limit: u64,
    ) -> Result<Vec<ThreadTurn>, ToolError> {
        let thread = get(self.db, self.user, reference).await?;
        let found = turn::Entity::find()
            .filter(turn::Column::ThreadId.eq(&thread.id))
            .filter(turn::Column::Position.gte(from))
            .order_by_asc(turn::Column::Position)
            .limit(limit)
            .all(self.db)
            .await?;
        in_one_piece(found)
    }

    /// Gives a thread another title.
    pub async fn rename(&self, reference: &str, title: String) -> Result<Thread, ToolError> {
        check::non_blank("title", &title, MAX_TITLE_BYTES)?;
        let mut change = thread::ActiveModel::from(self.lock(reference).await?);
        change.title = Set(title);
        into_thread(change.update(self.db).await?)
    }

    /// Deletes a thread with its turns. Cancels the turn that was open, and names it.
    pub async fn delete(&self, reference: &str, cancels: TurnCanceller<'_>) -> Result<Deleted, ToolError> {
        let thread = self.lock(reference).await?;
        if let Some(open) = &thread.open_turn {
            cancels.cancel(open).await?;
        }
        let turns = turn::Entity::delete_many().filter(turn::Column::ThreadId.eq(&thread.id));
        turns.exec(self.db).await?;
        thread::Entity::delete_by_id(&thread.id).exec(self.db).await?;
        let open_turn = thread.open_turn.as_deref().map(parse_id).transpose()?;
        Ok(Deleted { thread_id: thread.id, open_turn })
    }

    /// Finds a thread and locks it until the transaction ends.
    async fn lock(&self, reference: &str) -> Result<thread::Model, ToolError> {
        let found = get(self.db, self.user, reference).await?;
        lock(self.db, &found.id).await?.ok_or_else(|| ToolError::not_found("thread", reference))
    }
}

/// Converts rows until their texts fill a piece.
fn in_one_piece(rows: Vec<turn::Model>) -> Result<Vec<ThreadTurn>, ToolError> {
    let mut size = 0;
    let fits = |row: &turn::Model| {
        let is_first = size == 0;
        size += row.messages.len() + row.answer.as_ref().map_or(0, String::len);
        is_first || size <= MAX_PIECE_BYTES
    };
    rows.into_iter().take_while(fits).map(|row| to_thread_turn(&row)).collect()
}

fn to_thread_turn(row: &turn::Model) -> Result<ThreadTurn, ToolError> {
    Ok(ThreadTurn {
        handoff_id: parse_id(&row.id)?,
        position: row.position,
        messages: messages_of(row)?,
        answer: answer_of(row)?,
        created_at: row.created_at,
        ended_at: row.ended_at,
    })
}
