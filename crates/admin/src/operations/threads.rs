//! Threads: users and administrators read and change their own, and no one else's.

use contract::thread::{MAX_TITLE_BYTES, Thread};
use control::{ThreadBook, ThreadTurn, ToolError, TurnCanceller};
use sea_orm::DatabaseExecutor;
use serde_json::json;
use store::clock;
use tracing::warn;

use super::convert_tool_error;
use crate::{Actor, Admin, Error, orchestrator::ChatFailure};

/// More text than this is not exported at once: a thread can grow without a limit, memory cannot.
const MAX_EXPORT_BYTES: usize = 32 << 20;
const EXPORT_TURNS: u64 = 100;

fn convert(error: ToolError) -> Error {
    convert_tool_error("thread", error)
}

impl Admin {
    /// Lists the actor's threads, the last changed first. Empty if the actor is no user.
    pub(crate) async fn list_threads(
        &self,
        actor: &Actor,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<Thread>, Error> {
        let Some(user) = &actor.chat_user else { return Ok(Vec::new()) };
        let db = DatabaseExecutor::from(self.store.read());
        ThreadBook::new(&db, user).list(offset, limit).await.map_err(convert)
    }

    /// Returns a thread of the actor. Another user's is not found.
    pub(crate) async fn get_thread(&self, actor: &Actor, id: &str) -> Result<Thread, Error> {
        let user = user_of(actor, id)?;
        let db = DatabaseExecutor::from(self.store.read());
        ThreadBook::new(&db, user).get(id).await.map_err(convert)
    }

    /// Returns the last turns of a thread before a position, the oldest first.
    pub(crate) async fn turns_before(
        &self,
        actor: &Actor,
        id: &str,
        before: Option<i64>,
        limit: u64,
    ) -> Result<Vec<ThreadTurn>, Error> {
        let user = user_of(actor, id)?;
        let db = DatabaseExecutor::from(self.store.read());
        ThreadBook::new(&db, user).turns_before(id, before, limit).await.map_err(convert)
    }

    /// Returns all turns of a thread. Fails with [`Error::Conflict`] if they are too large.
    pub(crate) async fn all_turns(&self, actor: &Actor, id: &str) -> Result<Vec<ThreadTurn>, Error> {
        let user = user_of(actor, id)?;
        let db = DatabaseExecutor::from(self.store.read());
        let book = ThreadBook::new(&db, user);
        let (mut turns, mut size) = (Vec::new(), 0);
        loop {
            let from = turns.last().map_or(0, |last: &ThreadTurn| last.position + 1);
            let piece = book.turns_from(id, from, EXPORT_TURNS).await.map_err(convert)?;
            if piece.is_empty() {
                return Ok(turns);
            }
            size += piece.iter().map(size_of).sum::<usize>();
            if size > MAX_EXPORT_BYTES {
                let why = "the thread is too large to be exported at once; read it piece by piece over the \
                           chat API";
                return Err(Error::Conflict(why.to_owned()));
            }
            turns.extend(piece);
        }
    }

    /// Gives a thread of the actor another title.
    pub(crate) async fn rename_thread(&self, actor: &Actor, id: &str, title: &str) -> Result<Thread, Error> {
        let user = user_of(actor, id)?;
        let title = secrets::redact_by_kind(title.trim()).into_owned();
        if title.is_empty() || title.len() > MAX_TITLE_BYTES || title.chars().any(char::is_control) {
            let why = format!("must have 1 to {MAX_TITLE_BYTES} bytes and no control characters");
            return Err(Error::invalid("title", why));
        }
        let open = self.begin(actor, "admin.thread.rename", &json!({ "id": id, "title": title })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let renamed = ThreadBook::new(&db, user).rename(id, title).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(renamed)
    }

    /// Deletes a thread of the actor with all that was said in it, and stops what is worked on. Returns it,
    /// and why the work could not be stopped.
    pub(crate) async fn delete_thread(
        &self,
        actor: &Actor,
        id: &str,
    ) -> Result<(Thread, Option<ChatFailure>), Error> {
        let user = user_of(actor, id)?;
        let thread = self.get_thread(actor, id).await?;
        // Before the turn is deleted, since the orchestrator looks it up.
        let not_stopped = match thread.open_turn {
            Some(open) => self.stop_turn(actor, open).await?.err(),
            None => None,
        };
        if let Some(failure) = &not_stopped {
            warn!(?failure, "Work on a deleted thread not stopped.");
        }
        let open = self.begin(actor, "admin.thread.delete", &json!({ "id": id })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let by = actor.author();
        let (leases, sandboxes) = (&self.leases, &self.sandboxes);
        let cancels = TurnCanceller { db: &db, leases, sandboxes, now: clock::now(), by: &by };
        ThreadBook::new(&db, user).delete(id, cancels).await.map_err(convert)?;
        self.commit(open).await?;
        Ok((thread, not_stopped))
    }
}

/// Returns the user that the actor is in chats. Without one, no thread is found.
fn user_of<'a>(actor: &'a Actor, thread: &str) -> Result<&'a str, Error> {
    actor.chat_user.as_deref().ok_or_else(|| Error::not_found("thread", thread))
}

fn size_of(turn: &ThreadTurn) -> usize {
    let said: usize = turn.messages.iter().map(|message| message.content.len()).sum();
    said + turn.answer.as_ref().map_or(0, |answer| answer.text.len())
}
