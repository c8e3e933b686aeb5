//! Tasks: list, read, count; their dependencies and findings.

use api::{Task, TaskFilter, TaskListItem};
use contract::finding::Finding;
use control::{TaskBook, TaskCount, TaskDependency, ToolError, WantedTasks};
use sea_orm::DatabaseExecutor;

use super::convert_tool_error;
use crate::{Actor, Admin, Error, check};

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 200;

fn convert(error: ToolError) -> Error {
    convert_tool_error("task", error)
}

/// The tasks around one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskNeighbours {
    /// The tasks that it depends on.
    pub(crate) dependencies: Vec<TaskListItem>,
    /// The tasks that depend on it.
    pub(crate) dependents: Vec<TaskListItem>,
}

impl Admin {
    /// Lists tasks, the last changed first.
    pub(crate) async fn list_tasks(
        &self,
        actor: &Actor,
        filter: &TaskFilter,
    ) -> Result<Vec<TaskListItem>, Error> {
        actor.ensure_admin()?;
        let project = check::scope_id("project_id", filter.project_id.as_deref())?;
        let user = check::scope_id("user_id", filter.user_id.as_deref())?;
        let wanted = WantedTasks {
            project: project.as_ref().map(|id| id.as_str()),
            user: user.as_ref().map(|id| id.as_str()),
            status: filter.status,
            text: filter.text.as_deref(),
        };
        let db = DatabaseExecutor::from(self.store.read());
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let offset = u64::from(filter.offset.unwrap_or_default());
        TaskBook::new(&db).list(&wanted, offset, limit).await.map_err(convert)
    }

    /// Returns a task by its id, or by its name if no other task is called so.
    pub(crate) async fn get_task(&self, actor: &Actor, id: &str) -> Result<Task, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        TaskBook::new(&db).get(id).await.map_err(convert)
    }

    /// Counts the tasks of each project by status.
    pub(crate) async fn count_tasks(&self, actor: &Actor) -> Result<Vec<TaskCount>, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        TaskBook::new(&db).count().await.map_err(convert)
    }

    /// Returns the dependencies of tasks, in both directions.
    pub(crate) async fn list_dependencies(
        &self,
        actor: &Actor,
        tasks: &[&str],
    ) -> Result<Vec<TaskDependency>, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        TaskBook::new(&db).dependencies(tasks).await.map_err(convert)
    }

    /// Returns the tasks that a task waits for, and those that wait for it.
    pub(crate) async fn list_neighbours(&self, actor: &Actor, task: &str) -> Result<TaskNeighbours, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        let book = TaskBook::new(&db);
        let dependencies = book.dependencies(&[task]).await.map_err(convert)?;
        let (own, others): (Vec<_>, Vec<_>) = dependencies.iter().partition(|it| it.task_id == task);
        let own: Vec<&str> = own.iter().map(|it| it.depends_on.as_str()).collect();
        let others: Vec<&str> = others.iter().map(|it| it.task_id.as_str()).collect();
        Ok(TaskNeighbours {
            dependencies: book.named(&own).await.map_err(convert)?,
            dependents: book.named(&others).await.map_err(convert)?,
        })
    }

    /// Returns the findings on a task, the newest first.
    pub(crate) async fn list_findings(&self, actor: &Actor, task: &str) -> Result<Vec<Finding>, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        control::latest_findings(&db, task, MAX_LIMIT).await.map_err(convert)
    }
}
