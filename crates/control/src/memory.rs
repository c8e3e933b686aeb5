//! `memory.*`: texts that agents keep and find again.
//!
//! The memory profile of a call comes from its token or from the role of the worker, and is no argument of a
//! tool.

use contract::{
    Page,
    memory::{Content, Delete, Deleted, Found, Get, Kept, List, MAX_PUT_BYTES, Put, Search, Source},
};
use policy::Scope;

use super::{
    BuiltInTool, Context, Does, Entry, MemoryBook, NewMemory, PreparedMemory, ToolError, check,
    page::PageRequest,
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
        let lives = |seconds: u64| i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        let new = NewMemory {
            path: input.path,
            text: input.text,
            source: context.caller.agent.kind().to_string(),
            tags: input.tags,
            expires_at: input.expires_in_seconds.map(|seconds| context.now.saturating_add(lives(seconds))),
        };
        let prepared = PreparedMemory::new(context.profile(), new).await?;
        book(context).put(&context.memories.settings, prepared, true).await
    }
}

impl BuiltInTool for Search {
    const TITLE: &'static str = "Search memories";
    const DESCRIPTION: &'static str = "Finds pieces of kept texts and ingested documents that match words, \
        best first, each with its path and lines. Cite the path of what you use.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Found, ToolError> {
        let (profile, query) = (context.profile(), &input.query);
        context.memories.find(&context.db, profile, query, input.limit, context.now).await
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
        book(context).delete(&input.path, true).await?;
        Ok(Deleted { path: input.path })
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List memories";
    const DESCRIPTION: &'static str = "Lists kept texts by path, without their contents.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Source>, ToolError> {
        let page = PageRequest::new(input.limit, input.cursor.as_deref())?;
        Ok(page.paginate(book(context).sources(input.prefix.as_deref().unwrap_or_default()).await?))
    }
}
