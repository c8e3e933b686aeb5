//! `thread.get`, `thread.list`, `thread.messages` and `thread.turn.get`: what a user has said and been
//! answered.

use contract::{
    Page,
    thread::{Get, GetTurn, List, ListMessages, Thread, ThreadMessage, Turn, text_size},
};
use policy::Scope;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use subjects::ChatRole;

use super::{ThreadBook, answer_of, get, into_turn, messages_of, parse_id};
use crate::{BuiltInTool, Context, Does, ToolError, queries::page::PageRequest};
use store::{clock, entity::turn};

/// Turns that are read at once.
const BATCH: u64 = 20;
/// A page of messages ends after this many bytes.
const MAX_PAGE_BYTES: usize = 256 * 1024;

impl BuiltInTool for GetTurn {
    const TITLE: &'static str = "Get a turn";
    const DESCRIPTION: &'static str = "Gives one turn of a user, with its answer if it has ended.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Turn, ToolError> {
        let id = input.handoff_id.to_string();
        let found = turn::Entity::find_by_id(&id).one(&context.db).await?;
        let found = found.filter(|row| row.user_id == input.user_id.as_str());
        into_turn(found.ok_or_else(|| ToolError::not_found("turn", id))?)
    }
}

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a thread";
    const DESCRIPTION: &'static str = "Gives one thread of a user, by its id or by the client's name for it.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Thread, ToolError> {
        ThreadBook::new(&context.db, input.user_id.as_str()).get(&input.thread).await
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List threads";
    const DESCRIPTION: &'static str = "Lists the threads of a user, the last changed first.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Thread>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let book = ThreadBook::new(&context.db, input.user_id.as_str());
        Ok(request.build_page(book.list(request.offset, request.fetch_limit()).await?))
    }
}

impl BuiltInTool for ListMessages {
    const TITLE: &'static str = "List the messages of a thread";
    const DESCRIPTION: &'static str =
        "Lists what was said in a thread of a user, the oldest first. A page ends with a turn.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<ThreadMessage>, ToolError> {
        // The cursor counts turns, since a page has whole ones.
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let thread = get(&context.db, input.user_id.as_str(), &input.thread).await?;
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let (mut items, mut size, mut next) = (Vec::new(), 0, request.offset);
        loop {
            let batch = turn::Entity::find()
                .filter(turn::Column::ThreadId.eq(&thread.id))
                .order_by_asc(turn::Column::Position)
                .offset(next)
                .limit(BATCH)
                .all(&context.db)
                .await?;
            if batch.is_empty() {
                return Ok(Page { items, next_cursor: None });
            }
            for row in batch {
                let said = messages_in(&row)?;
                size += said.iter().map(|it| text_size(&it.content)).sum::<usize>();
                if !items.is_empty() && (items.len() >= limit || size > MAX_PAGE_BYTES) {
                    return Ok(Page { items, next_cursor: Some(next.to_string()) });
                }
                items.extend(said);
                next += 1;
            }
        }
    }
}

/// Returns what was said in a turn: its new messages and its answer.
fn messages_in(row: &turn::Model) -> Result<Vec<ThreadMessage>, ToolError> {
    let handoff_id = parse_id(&row.id)?;
    let created_at = clock::text(row.created_at);
    let mut said: Vec<ThreadMessage> = messages_of(row)?
        .into_iter()
        .map(|message| ThreadMessage {
            handoff_id,
            role: message.role,
            content: message.content,
            state: None,
            created_at: created_at.clone(),
        })
        .collect();
    said.extend(answer_of(row)?.map(|answer| ThreadMessage {
        handoff_id,
        role: ChatRole::Assistant,
        content: answer.text,
        state: Some(answer.state),
        created_at: clock::text(row.ended_at.unwrap_or(row.created_at)),
    }));
    Ok(said)
}
