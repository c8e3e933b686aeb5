//! `thread.rename` and `thread.delete`.

use contract::thread::{Delete, Deleted, MAX_TITLE_BYTES, Rename, Thread};
use policy::Scope;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter};

use super::{get, into_thread, lock, parse_id};
use crate::{BuiltInTool, Context, Does, ToolError, check};
use store::entity::{thread, turn};

impl BuiltInTool for Rename {
    const TITLE: &'static str = "Rename a thread";
    const DESCRIPTION: &'static str = "Gives a thread of a user another title.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Thread, ToolError> {
        check::non_blank("title", &input.title, MAX_TITLE_BYTES)?;
        let mut change =
            thread::ActiveModel::from(lock_of(context, input.user_id.as_str(), &input.thread).await?);
        change.title = Set(input.title);
        into_thread(change.update(&context.db).await?)
    }
}

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a thread";
    const DESCRIPTION: &'static str = "Deletes a thread of a user with all that was said in it. Names the \
        turn that was not answered, so that its work can be cancelled.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        let thread = lock_of(context, input.user_id.as_str(), &input.thread).await?;
        let turns = turn::Entity::delete_many().filter(turn::Column::ThreadId.eq(&thread.id));
        turns.exec(&context.db).await?;
        thread::Entity::delete_by_id(&thread.id).exec(&context.db).await?;
        let open_turn = thread.open_turn.as_deref().map(parse_id).transpose()?;
        Ok(Deleted { thread_id: thread.id, open_turn })
    }
}

/// Finds a thread of a user and locks it until the transaction ends.
async fn lock_of(context: &Context<'_>, user: &str, reference: &str) -> Result<thread::Model, ToolError> {
    let found = get(context, user, reference).await?;
    lock(context, &found.id).await?.ok_or_else(|| ToolError::not_found("thread", reference))
}
