//! Reads tasks, for administrators.

use contract::task::{ListItem, Status, Task};
use sea_orm::{ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use store::entity::{task, task_dependency};

use super::{into_task, read::into_list_item};
use crate::{ToolError, arguments::check, queries::search, task_rows::graph::MAX_IDS_PER_STATEMENT};

/// The tasks of all projects and users.
#[derive(Debug)]
pub struct TaskBook<'b> {
    db: &'b DatabaseExecutor<'b>,
}

/// A filter for lists of tasks.
#[derive(Clone, Debug, Default)]
pub struct WantedTasks<'w> {
    pub project: Option<&'w str>,
    pub user: Option<&'w str>,
    pub status: Option<Status>,
    /// In the name, the title or the description.
    pub text: Option<&'w str>,
}

/// How many tasks of a project, or of none, are in a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCount {
    pub project_id: Option<String>,
    pub status: Status,
    pub tasks: i64,
}

/// A dependency: `task_id` waits for `depends_on`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskDependency {
    pub task_id: String,
    pub depends_on: String,
}

impl<'b> TaskBook<'b> {
    pub fn new(db: &'b DatabaseExecutor<'b>) -> Self {
        Self { db }
    }

    /// Lists tasks, the last changed first.
    pub async fn list(
        &self,
        wanted: &WantedTasks<'_>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<ListItem>, ToolError> {
        let mut query = task::Entity::find();
        for (column, id) in [(task::Column::ProjectId, wanted.project), (task::Column::UserId, wanted.user)] {
            if let Some(id) = id {
                query = query.filter(column.eq(id));
            }
        }
        if let Some(status) = wanted.status {
            query = query.filter(task::Column::Status.eq(status.as_str()));
        }
        let columns = [task::Column::Name, task::Column::Title, task::Column::Description];
        if let Some(containing) = search::containing(wanted.text, &columns)? {
            query = query.filter(containing);
        }
        let query = query.order_by_desc(task::Column::UpdatedAt).order_by_desc(task::Column::Id);
        let rows = query.offset(offset).limit(limit).all(self.db).await?;
        rows.into_iter().map(into_list_item).collect()
    }

    /// Returns a task by its id, or by its name if no other task is called so.
    pub async fn get(&self, id: &str) -> Result<Task, ToolError> {
        if let Some(found) = task::Entity::find_by_id(id).one(self.db).await? {
            return into_task(found);
        }
        let named = task::Entity::find().filter(task::Column::Name.eq(id)).limit(2);
        let mut named = named.all(self.db).await?;
        match (named.pop(), named.is_empty()) {
            (None, _) => Err(ToolError::not_found("task", id)),
            (Some(found), true) => into_task(found),
            (Some(_), false) => {
                Err(ToolError::Conflict(format!("several tasks are called {id}; give the id instead")))
            }
        }
    }

    /// Counts the tasks of each project by status.
    pub async fn count(&self) -> Result<Vec<TaskCount>, ToolError> {
        let grouped = task::Entity::find()
            .select_only()
            .column(task::Column::ProjectId)
            .column(task::Column::Status)
            .column_as(task::Column::Id.count(), "tasks")
            .group_by(task::Column::ProjectId)
            .group_by(task::Column::Status)
            .into_tuple::<(Option<String>, String, i64)>();
        let into_count = |(project_id, status, tasks): (_, String, _)| {
            Ok(TaskCount { project_id, status: check::parse_stored("status of a task", &status)?, tasks })
        };
        grouped.all(self.db).await?.into_iter().map(into_count).collect()
    }

    /// Returns the dependencies of tasks: those by which they wait, and those by which others wait for them.
    pub async fn dependencies(&self, tasks: &[&str]) -> Result<Vec<TaskDependency>, ToolError> {
        let mut found = Vec::new();
        for chunk in tasks.chunks(MAX_IDS_PER_STATEMENT) {
            let ids = || chunk.iter().copied();
            let either = Condition::any()
                .add(task_dependency::Column::TaskId.is_in(ids()))
                .add(task_dependency::Column::DependsOn.is_in(ids()));
            let rows = task_dependency::Entity::find().filter(either).all(self.db).await?;
            found.extend(rows.into_iter().map(|row| (row.task_id, row.depends_on)));
        }
        // One between tasks of two chunks is found twice.
        found.sort_unstable();
        found.dedup();
        let into_dependency = |(task_id, depends_on)| TaskDependency { task_id, depends_on };
        Ok(found.into_iter().map(into_dependency).collect())
    }

    /// Returns tasks by their ids, 500 at most, in the order of their names.
    pub async fn named(&self, ids: &[&str]) -> Result<Vec<ListItem>, ToolError> {
        let query = task::Entity::find()
            .filter(task::Column::Id.is_in(ids.iter().copied().take(MAX_IDS_PER_STATEMENT)));
        let rows = query.order_by_asc(task::Column::Name).all(self.db).await?;
        rows.into_iter().map(into_list_item).collect()
    }
}
