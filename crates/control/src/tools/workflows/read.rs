//! `workflow.get` and `workflow.list`.

use contract::{
    Page,
    workflow::{Details, Get, List, Workflow},
};
use policy::{Scope, ScopedId};
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QuerySelect, QueryTrait};
use store::entity::{task, workflow};

use super::WorkflowBook;
use crate::{
    BuiltInTool, Context, Does, ToolError, confinement::Confinement, queries::page::PageRequest, task_rows,
};

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get the workflow of a task";
    const DESCRIPTION: &'static str = "Gives the workflow of a task: its status, why it waits, the question \
        that a person has to answer, its state, the jobs and handoffs that it began, and what happened last.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<Details, ToolError> {
        let task = task_rows::find(context, &input.task_id).await?;
        WorkflowBook::of(context).get(&task.id).await
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List workflows";
    const DESCRIPTION: &'static str = "Lists workflows, the last changed first: of one project or user, or \
        in one status if named. workflow.get has their details.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Workflow>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let within = Confinement::to_tasks(context).map(|confinement| {
            let own = task::Entity::find().select_only().column(task::Column::Id);
            let own = own.filter(confinement.tasks()).into_query();
            // A task without an owner belongs to all; its workflow acts for one user.
            Condition::all()
                .add(workflow::Column::TaskId.in_subquery(own))
                .add(workflow::Column::UserId.eq(&confinement.user))
        });
        let book = WorkflowBook::of(context);
        let found = book.list(&input, within, request.offset, request.fetch_limit()).await?;
        Ok(request.build_page(found))
    }
}
