//! `sandbox.job.get` and `sandbox.job.list`.

use contract::{
    Page,
    sandbox::{GetJob, Job, JobSummary, ListJobs},
};
use policy::{Scope, ScopedId};
use sea_orm::EntityTrait;
use store::entity::{job, task};
use subjects::ScopeId;

use super::{JobBook, book::require, view};
use crate::{
    BuiltInTool, Context, Does, ToolError, confinement::Confinement, queries::page::PageRequest, tools::tasks,
};

impl BuiltInTool for GetJob {
    const TITLE: &'static str = "Get a sandbox job";
    const DESCRIPTION: &'static str = "Gives one job of sandbox.run: its status, why it waits, how it ended, \
        its exit code, the end of its output, and the files that it left.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Job];
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<Job, ToolError> {
        let row = find(context, &input.job_id, input.task_id.as_ref()).await?;
        view::describe(&context.db, row, context.now).await
    }
}

impl BuiltInTool for ListJobs {
    const TITLE: &'static str = "List sandbox jobs";
    const DESCRIPTION: &'static str = "Lists jobs of sandbox.run, the newest first: of one task, in one \
        status, or on one node if named.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, mut input: Self) -> Result<Page<JobSummary>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        if let Some(id) = &input.task_id {
            let found = tasks::find(context, id).await?;
            input.task_id = found.id.parse().ok();
        }
        let within = Confinement::to_tasks(context).map(|confinement| confinement.jobs());
        let book = JobBook::new(&context.db, context.sandboxes, context.now);
        let found = book.list(&input, within, request.offset, request.fetch_limit()).await?;
        Ok(request.build_page(found))
    }
}

/// Finds a job in a sandbox. One of another task or user is not found (M106).
pub(super) async fn find(
    context: &Context<'_>,
    id: &ScopeId,
    task: Option<&ScopeId>,
) -> Result<job::Model, ToolError> {
    let found = job::Entity::find_by_id(id.as_str()).one(&context.db).await?;
    let row = require(found, id.as_str())?;
    let missing = || ToolError::not_found("job", id.as_str());
    if task.is_some_and(|task| row.task_id != task.as_str()) {
        return Err(missing());
    }
    if let Some(confinement) = Confinement::to_tasks(context) {
        let task = task::Entity::find_by_id(&row.task_id).one(&context.db).await?;
        if !task.is_some_and(|task| confinement.includes_task(&task)) {
            return Err(missing());
        }
    }
    Ok(row)
}
