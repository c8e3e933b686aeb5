//! `thread.rename` and `thread.delete`.

use contract::thread::{Delete, Deleted, Rename, Thread};
use policy::Scope;

use super::{ThreadBook, TurnCanceller};
use crate::{BuiltInTool, Context, Does, ToolError};

impl BuiltInTool for Rename {
    const TITLE: &'static str = "Rename a thread";
    const DESCRIPTION: &'static str = "Gives a thread of a user another title.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Thread, ToolError> {
        ThreadBook::new(&context.db, input.user_id.as_str()).rename(&input.thread, input.title).await
    }
}

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a thread";
    const DESCRIPTION: &'static str = "Deletes a thread of a user with all that was said in it. Cancels the \
        turn that was not answered, and names it, so that workers can be told.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        let (db, by) = (&context.db, context.author());
        let (leases, sandboxes) = (context.leases, context.sandboxes);
        let cancels = TurnCanceller { db, leases, sandboxes, now: context.now, by: &by };
        ThreadBook::new(db, input.user_id.as_str()).delete(&input.thread, cancels).await
    }
}
