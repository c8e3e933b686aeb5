//! Updates workflows when their tasks change.

use contract::{
    task::Status as TaskStatus,
    workflow::{Policy, Status},
};
use sea_orm::EntityTrait;
use store::entity::{system_setting, task, workflow};

use super::{WorkflowBook, rows, view};
use crate::{
    Context, ToolError,
    task_rows::graph::{self, Direction},
};

/// Called by whatever changes a task, in the same transaction, with the task locked.
pub(crate) struct TaskHooks<'h>(WorkflowBook<'h>);

impl<'h> TaskHooks<'h> {
    pub(crate) fn of(context: &'h Context<'h>) -> Self {
        Self(WorkflowBook::of(context))
    }

    /// Fails with a conflict if the workflow of a task is active: it decides how the task ends.
    pub(crate) async fn check_may_end(&self, task: &task::Model) -> Result<(), ToolError> {
        match self.active(&task.id).await? {
            None => Ok(()),
            Some(row) => Err(ToolError::Conflict(format!(
                "the workflow of the task {} is {} and decides how the task ends; workflow.cancel ends both",
                task.name, row.status
            ))),
        }
    }

    /// Fails with a conflict if the workflow of a task has begun: it cannot be made to wait for others.
    pub(crate) async fn check_may_wait(&self, task: &task::Model) -> Result<(), ToolError> {
        match self.active(&task.id).await? {
            Some(row) if row.sent && row.status != Status::Waiting.as_str() => {
                Err(ToolError::Conflict(format!(
                    "the workflow of the task {} has begun, so the task cannot be made to wait; pause it \
                     with workflow.pause first",
                    task.name
                )))
            }
            _ => Ok(()),
        }
    }

    async fn active(&self, task: &str) -> Result<Option<workflow::Model>, ToolError> {
        let row = workflow::Entity::find_by_id(task).one(self.0.db).await?;
        match row {
            Some(row) if !rows::status_of(&row)?.is_final() => Ok(Some(row)),
            _ => Ok(None),
        }
    }

    /// Cancels the workflows of tasks that were cancelled.
    pub(crate) async fn canceled<'t>(
        &self,
        tasks: impl Iterator<Item = &'t task::Model> + Send,
    ) -> Result<(), ToolError> {
        let ids: Vec<String> = tasks.map(|task| task.id.clone()).collect();
        self.0.cancel_active(ids, None).await.map(drop)
    }

    /// Sends the workflows that waited for a task which is completed now. Its dependents are locked.
    pub(crate) async fn completed(&self, task: &str) -> Result<(), ToolError> {
        self.0.continue_dependents(task).await
    }

    /// Sends the workflow of a task that lost a dependency, if it waits for no other.
    pub(crate) async fn dependency_removed(&self, task: &str) -> Result<(), ToolError> {
        self.0.send_if_ready(task).await.map(drop)
    }

    /// Starts the workflow of a new task, if the system does so. What it depends on is locked.
    pub(crate) async fn created(&self, task: &task::Model) -> Result<(), ToolError> {
        if task.user_id.is_none() || !self.0.starts_when_ready().await? {
            return Ok(());
        }
        let dependencies = graph::dependencies(self.0.db, &task.id).await?;
        if task.acceptance_criteria == "[]" && dependencies.is_empty() {
            return Ok(());
        }
        self.0.begin(task, &dependencies, None, Policy::default(), None).await.map(drop)
    }
}

impl WorkflowBook<'_> {
    /// Sends the workflows that waited for a task, and starts those of tasks that are ready now, if the
    /// system does so. The task is completed, and its dependents are locked.
    pub(super) async fn continue_dependents(&self, task: &str) -> Result<(), ToolError> {
        let dependents = graph::neighbours(self.db, &[task.to_owned()], Direction::Dependents).await?;
        if dependents.is_empty() {
            return Ok(());
        }
        let starts = self.starts_when_ready().await?;
        for id in dependents {
            let has_workflow = self.send_if_ready(&id).await?;
            if !has_workflow && starts {
                self.start_if_ready(&id).await?;
            }
        }
        Ok(())
    }

    async fn start_if_ready(&self, id: &str) -> Result<(), ToolError> {
        let Some(task) = task::Entity::find_by_id(id).one(self.db).await? else { return Ok(()) };
        let is_open = [TaskStatus::Pending, TaskStatus::Ready].iter().any(|it| it.as_str() == task.status);
        let dependencies = graph::dependencies(self.db, id).await?;
        if is_open && task.user_id.is_some() && view::is_ready(&dependencies) {
            self.begin(&task, &dependencies, None, Policy::default(), None).await?;
        }
        Ok(())
    }

    async fn starts_when_ready(&self) -> Result<bool, ToolError> {
        if !self.sandboxes.has_nats() {
            return Ok(false);
        }
        let setting = system_setting::Entity::find_by_id(policy::START_WHEN_READY).one(self.db).await?;
        let has_effect = |row: &system_setting::Model| policy::has_effect(&row.key, &row.updated_by);
        Ok(setting.filter(has_effect).is_some_and(|setting| setting.value == "true"))
    }
}
