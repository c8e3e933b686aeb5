//! Workflows: list, read, start, steer.

use api::{ResumeWorkflow, StartWorkflow, Workflow, WorkflowDetails, WorkflowFilter};
use contract::workflow::{List, Start};
use control::{TaskBook, ToolError, WorkflowAnswer, WorkflowBook};
use sea_orm::{ColumnTrait, Condition, DatabaseExecutor};
use serde_json::json;
use store::{clock, entity::workflow};

use super::convert_tool_error;
use crate::{Actor, Admin, Error, check};

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 200;

/// The actions of a person on a workflow.
#[derive(Clone, Debug)]
pub(crate) enum Steering {
    Start(StartWorkflow),
    Cancel { reason: Option<String> },
    Pause,
    Resume(ResumeWorkflow),
    Retry { from_start: bool },
}

impl Steering {
    /// Returns the operation as the audit names it.
    fn operation(&self) -> &'static str {
        match self {
            Self::Start(_) => "admin.workflow.start",
            Self::Cancel { .. } => "admin.workflow.cancel",
            Self::Pause => "admin.workflow.pause",
            Self::Resume(_) => "admin.workflow.resume",
            Self::Retry { .. } => "admin.workflow.retry",
        }
    }

    /// Returns the field that is to blame if the request is invalid.
    fn field(&self) -> &'static str {
        match self {
            Self::Start(_) => "steps",
            Self::Cancel { .. } => "reason",
            Self::Resume(_) => "input",
            Self::Pause | Self::Retry { .. } => "task",
        }
    }

    async fn apply(self, book: &WorkflowBook<'_>, task_id: &str) -> Result<Workflow, ToolError> {
        match self {
            Self::Start(StartWorkflow { steps, policy, user_id }) => {
                let task_id = task_id.parse().map_err(|_| ToolError::not_found("task", task_id))?;
                let wanted = Start { steps, policy, ..Start::new(task_id) };
                book.start(&wanted, user_id.as_deref()).await
            }
            Self::Cancel { reason } => book.cancel(task_id, reason.as_deref()).await,
            Self::Pause => book.pause(task_id).await,
            Self::Resume(ResumeWorkflow { input, question_id }) => {
                let answer = WorkflowAnswer { input: input.as_deref(), question_id: question_id.as_deref() };
                book.resume(task_id, &answer).await
            }
            Self::Retry { from_start } => book.retry(task_id, from_start).await,
        }
    }
}

/// Converts an error. A task without a workflow is not found, under the name that was given.
fn convert(field: &'static str, id: &str, error: ToolError) -> Error {
    match error {
        ToolError::Refused { code: "not_found", .. } => Error::not_found("workflow of task", id),
        other => convert_tool_error(field, other),
    }
}

/// Checks for whom a workflow is to act: the user of its task, if it has one.
fn check_user(user: &str, of_task: Option<&str>) -> Result<(), Error> {
    check::scope_id("user_id", Some(user))?;
    match of_task {
        Some(owner) if owner != user => {
            let why = format!("the task belongs to {owner}, for whom its workflow acts; leave the user out");
            Err(Error::invalid("user_id", why))
        }
        _ => Ok(()),
    }
}

impl Admin {
    /// Lists workflows, the last changed first.
    pub(crate) async fn list_workflows(
        &self,
        actor: &Actor,
        filter: &WorkflowFilter,
    ) -> Result<Vec<Workflow>, Error> {
        actor.ensure_admin()?;
        let wanted = List {
            project_id: check::scope_id("project_id", filter.project_id.as_deref())?,
            user_id: check::scope_id("user_id", filter.user_id.as_deref())?,
            status: filter.status,
            ..List::default()
        };
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let offset = u64::from(filter.offset.unwrap_or_default());
        self.find_workflows(actor, &wanted, None, offset, limit).await
    }

    /// Returns the workflows of tasks; tasks without one are left out.
    pub(crate) async fn list_workflows_of(
        &self,
        actor: &Actor,
        tasks: &[&str],
    ) -> Result<Vec<Workflow>, Error> {
        actor.ensure_admin()?;
        let within = Condition::all().add(workflow::Column::TaskId.is_in(tasks.iter().copied()));
        let limit = u64::try_from(tasks.len()).unwrap_or(u64::MAX);
        self.find_workflows(actor, &List::default(), Some(within), 0, limit).await
    }

    async fn find_workflows(
        &self,
        actor: &Actor,
        wanted: &List,
        within: Option<Condition>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<Workflow>, Error> {
        let db = DatabaseExecutor::from(self.store.read());
        let book = WorkflowBook::new(&db, &self.sandboxes, &self.leases, clock::now(), actor.author());
        let found = book.list(wanted, within, offset, limit).await;
        found.map_err(|error| convert_tool_error("workflow", error))
    }

    /// Returns the workflow of a task, which is named by its id, or by its name if no other task is called
    /// so.
    pub(crate) async fn get_workflow(&self, actor: &Actor, id: &str) -> Result<WorkflowDetails, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        let failed = |error| convert("task", id, error);
        let task = TaskBook::new(&db).get(id).await.map_err(failed)?;
        let book = WorkflowBook::new(&db, &self.sandboxes, &self.leases, clock::now(), actor.author());
        book.get(&task.task_id).await.map_err(failed)
    }

    /// Starts the workflow of a task, or changes one, as a person wants it.
    pub(crate) async fn steer_workflow(
        &self,
        actor: &Actor,
        id: &str,
        steering: Steering,
    ) -> Result<Workflow, Error> {
        let (what, field) = (steering.operation(), steering.field());
        self.require_admin(actor, what).await?;
        if !self.sandboxes.has_nats() {
            let why = "workflows need NATS, by which runners are told: set nats.url of the gateway";
            return Err(Error::Unreachable(why.to_owned()));
        }
        let open = self.begin(actor, what, &json!({ "task": id })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let failed = |error| convert(field, id, error);
        let task = TaskBook::new(&db).get(id).await.map_err(failed)?;
        if let Steering::Start(StartWorkflow { user_id: Some(user), .. }) = &steering {
            check_user(user, task.user_id.as_deref())?;
        }
        let book = WorkflowBook::new(&db, &self.sandboxes, &self.leases, clock::now(), actor.author());
        let workflow = steering.apply(&book, &task.task_id).await.map_err(failed)?;
        self.commit(open).await?;
        // Notifies its runner at once.
        self.sandboxes.wake_waiting();
        Ok(workflow)
    }
}
