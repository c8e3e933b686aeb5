//! Reads and steers workflows, for tools and for administrators.

use contract::workflow::{Details, List, Workflow};
use policy::Bounds;
use sea_orm::{ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use store::entity::{workflow, workflow_checkpoint};

use super::{effects, events, rights::Rights, rows, view};
use crate::{Context, LeaseIssuer, Sandboxes, ToolError};

/// How many events and effects are shown with a workflow.
const MAX_EVENTS: u64 = 200;
const MAX_EFFECTS: u64 = 500;

/// The workflows of all tasks.
#[derive(Debug)]
pub struct WorkflowBook<'b> {
    pub(super) db: &'b DatabaseExecutor<'b>,
    pub(super) sandboxes: &'b Sandboxes,
    pub(super) leases: &'b LeaseIssuer,
    /// Microseconds since 1970.
    pub(super) now: i64,
    /// The author of changes.
    pub(super) by: String,
    /// The user, project and task that the author is confined to.
    pub(super) within: Option<Bounds>,
    /// The rights of workflows that the author starts. An administrator's have the profile of their user.
    pub(super) rights: Rights,
}

impl<'b> WorkflowBook<'b> {
    /// `db` is a transaction for whatever changes something. After its commit, [`Sandboxes::wake_waiting`]
    /// tells the calls of runners.
    pub fn new(
        db: &'b DatabaseExecutor<'b>,
        sandboxes: &'b Sandboxes,
        leases: &'b LeaseIssuer,
        now: i64,
        by: String,
    ) -> Self {
        Self { db, sandboxes, leases, now, by, within: None, rights: Rights::default() }
    }

    pub(super) fn of(context: &'b Context<'b>) -> Self {
        let (within, rights, author) = (context.caller.bounds(), Rights::of(context), context.author());
        let new = Self::new(&context.db, context.sandboxes, context.leases, context.now, author);
        Self { within, rights, ..new }
    }

    /// Lists workflows, the last changed first.
    pub async fn list(
        &self,
        wanted: &List,
        within: Option<Condition>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<Workflow>, ToolError> {
        let mut query = workflow::Entity::find();
        for (column, id) in
            [(workflow::Column::ProjectId, &wanted.project_id), (workflow::Column::UserId, &wanted.user_id)]
        {
            if let Some(id) = id {
                query = query.filter(column.eq(id.as_str()));
            }
        }
        if let Some(status) = wanted.status {
            query = query.filter(workflow::Column::Status.eq(status.as_str()));
        }
        if let Some(within) = within {
            query = query.filter(within);
        }
        let query = query.order_by_desc(workflow::Column::UpdatedAt).order_by_desc(workflow::Column::TaskId);
        let rows = query.offset(offset).limit(limit).all(self.db).await?;
        view::describe_all(self.db, rows).await
    }

    /// Returns the workflow of a task with its state, its jobs and handoffs, and what happened last.
    pub async fn get(&self, task_id: &str) -> Result<Details, ToolError> {
        let row = rows::find(self.db, task_id).await?;
        let stored = workflow_checkpoint::Entity::find_by_id(task_id).one(self.db).await?;
        let state = stored.and_then(|stored| serde_json::from_str(&stored.state).ok());
        Ok(Details {
            workflow: view::describe(self.db, row).await?,
            state,
            effects: effects::latest(self.db, task_id, MAX_EFFECTS).await?,
            events: events::latest(self.db, task_id, MAX_EVENTS).await?,
        })
    }
}
