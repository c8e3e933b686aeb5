//! `memory.*`: texts that agents keep and find again.
//!
//! The memory profile of a call comes from its lease, its token or its worker, and is no argument of a tool.

use contract::{
    Page,
    memory::{Content, Delete, Deleted, Found, Get, Kept, List, MAX_PUT_BYTES, Put, Search, Source},
};
use policy::Scope;

use crate::{
    BuiltInTool, Context, Does, Entry, MemoryAuthor, MemoryBook, NewMemory, PreparedMemory, ToolError,
    Wanted,
    arguments::check,
    queries::page::{PageRequest, take_fitting},
};

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Put>(),
        Entry::of::<Search>(),
        Entry::of::<Get>(),
        Entry::of::<Delete>(),
        Entry::of::<List>(),
    ]
}

fn book<'c>(context: &'c Context<'_>) -> MemoryBook<'c> {
    MemoryBook::new(&context.db, context.profile(), context.now)
}

impl BuiltInTool for Put {
    const TITLE: &'static str = "Keep a memory";
    const DESCRIPTION: &'static str = "Keeps a text under a path, for later work of agents with the same \
        memory profile. A text that is there is replaced as a whole. Keep facts and decisions, not secrets.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Kept, ToolError> {
        check::text("text", &input.text, MAX_PUT_BYTES)?;
        let new = NewMemory {
            path: input.path,
            text: input.text,
            source: context.caller.agent.kind().to_string(),
            tags: input.tags,
            expires_at: NewMemory::expiry(input.expires_in_seconds, context.now)?,
        };
        let prepared = PreparedMemory::new(context.profile(), new).await?;
        book(context).put(&context.memories.settings, prepared, MemoryAuthor::Agent).await
    }
}

impl BuiltInTool for Search {
    const TITLE: &'static str = "Search memories";
    const DESCRIPTION: &'static str = "Finds pieces of kept texts and ingested documents that match words, \
        best first, each with its path and lines. Cite the path of what you use.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Found, ToolError> {
        let wanted = Wanted { query: &input.query, limit: input.limit, prefix: "" };
        let found = context.memories.find(&context.db, context.profile(), &wanted, context.now).await?;
        // The best come first: what does not fit into an answer is the rest.
        Ok(Found { memories: take_fitting(found.memories) })
    }
}

impl BuiltInTool for Get {
    const TITLE: &'static str = "Read a memory";
    const DESCRIPTION: &'static str = "Reads the text that is kept under a path, 16 KiB at a time.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Content, ToolError> {
        book(context).get(&input.path, input.cursor.as_deref()).await
    }
}

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a memory";
    const DESCRIPTION: &'static str = "Deletes the text that is kept under a path, for good.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        book(context).delete(&input.path, MemoryAuthor::Agent).await?;
        Ok(Deleted { path: input.path })
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List memories";
    const DESCRIPTION: &'static str = "Lists kept texts by path, without their contents.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Source>, ToolError> {
        let mut sources = book(context).sources(input.prefix.as_deref().unwrap_or_default()).await?;
        // Paths may come and go between two pages: the cursor is the last path, and not a number.
        sources.retain(|source| input.cursor.as_ref().is_none_or(|last| source.path > *last));
        let mut page = PageRequest::new(input.limit, None)?.paginate(sources);
        page.next_cursor = page.next_cursor.and_then(|_| Some(page.items.last()?.path.clone()));
        Ok(page)
    }
}
