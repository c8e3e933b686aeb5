//! `schedule.create`, `update`, `get`, `list`, `delete`, `preview`, `run_now` and `runs`.

use contract::{
    Page,
    schedule::{
        Create, Delete, Deleted, Get, List, Preview, Previewed, Run, RunNow, Runs, Schedule, ScheduleDetails,
        Update,
    },
};
use policy::{Scope, ScopedId};
use subjects::ScopeId;

use super::{book::ScheduleBook, read::preview_schedule};
use crate::{BuiltInTool, Context, Does, ToolError, queries::page::PageRequest};

/// Returns the book of one user's schedules.
fn book<'w>(context: &'w Context<'w>, user: &ScopeId) -> ScheduleBook<'w> {
    ScheduleBook::new(&context.db, context.now, context.author(), Some(user.to_string()))
}

impl BuiltInTool for Create {
    const TITLE: &'static str = "Create a schedule";
    const DESCRIPTION: &'static str = "Creates a schedule of a user and gives it back with its schedule_id \
        and its next slot. Names are unique among the schedules of a user.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<ScheduleDetails, ToolError> {
        book(context, &input.user_id).create(&input.user_id, input.new).await
    }
}

impl BuiltInTool for Update {
    const TITLE: &'static str = "Change a schedule";
    const DESCRIPTION: &'static str = "Changes what is given of a schedule. `enabled` suspends and resumes \
        it: what was due meanwhile counts as missed. A new timing begins after now.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<ScheduleDetails, ToolError> {
        book(context, &input.user_id).update(&input.schedule, input.change).await
    }
}

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a schedule";
    const DESCRIPTION: &'static str = "Gives one schedule of a user, by id or name, with its payload.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<ScheduleDetails, ToolError> {
        book(context, &input.user_id).get(&input.schedule).await
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List schedules";
    const DESCRIPTION: &'static str = "Lists the schedules of a user by name, without their payloads.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Schedule>, ToolError> {
        let page = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let found = book(context, &input.user_id).list(page.offset, page.fetch_limit()).await?;
        Ok(page.build_page(found))
    }
}

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a schedule";
    const DESCRIPTION: &'static str =
        "Deletes a schedule and its runs. Gives the handoffs of open runs, whose work goes on.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        book(context, &input.user_id).delete(&input.schedule, input.expected_version).await
    }
}

impl BuiltInTool for Preview {
    const TITLE: &'static str = "Preview a timing";
    const DESCRIPTION: &'static str =
        "Computes when a timing is due next, by the clock of its time zone. Stores nothing.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Previewed, ToolError> {
        preview_schedule(&input, context.now)
    }
}

impl BuiltInTool for RunNow {
    const TITLE: &'static str = "Run a schedule now";
    const DESCRIPTION: &'static str = "Starts a run of a schedule now, also of a suspended one. Its slots \
        stay as they are. The next schedule.fire gives the run to be published.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Run, ToolError> {
        let (leases, sandboxes) = (context.leases, context.sandboxes);
        book(context, &input.user_id).run_now(&input.schedule, leases, sandboxes).await
    }
}

impl BuiltInTool for Runs {
    const TITLE: &'static str = "List the runs of a schedule";
    const DESCRIPTION: &'static str =
        "Lists what became of the slots of a schedule: runs and what was skipped, the latest first.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::User];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Run>, ToolError> {
        let page = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let book = book(context, &input.user_id);
        Ok(page.build_page(book.runs(&input.schedule, page.offset, page.fetch_limit()).await?))
    }
}
