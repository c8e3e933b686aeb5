//! `db.task.*`: tasks and their statuses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{IdError, ScopeId};

use crate::{Page, tool};

pub const MAX_TITLE_BYTES: usize = 300;
pub const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;
pub const MAX_CRITERIA: usize = 50;
pub const MAX_DEPENDENCIES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TaskStatus))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    Ready,
    Running,
    Blocked,
    Completed,
    Failed,
    Canceled,
}

impl Status {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Ready,
        Self::Running,
        Self::Blocked,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Task {
    pub task_id: String,
    /// Unique in its project, or among the tasks of its user.
    pub name: String,
    pub title: String,
    pub description: String,
    pub acceptance_criteria: Vec<String>,
    pub status: Status,
    pub project_id: Option<String>,
    pub user_id: Option<String>,
    pub parent_task_id: Option<String>,
    pub schedule_id: Option<String>,
    pub run_id: Option<String>,
    pub order: i64,
    pub version: i64,
    pub created_at: String,
    pub updated_at: String,
}

// The task as the context of a handoff has it.
impl TryFrom<Task> for subjects::Task {
    type Error = IdError;

    fn try_from(task: Task) -> Result<Self, IdError> {
        Ok(Self {
            id: task.task_id.parse()?,
            name: task.name,
            status: Some(task.status.as_str().to_owned()),
            description: Some(task.description),
            acceptance_criteria: task.acceptance_criteria,
        })
    }
}

/// A task without its details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSummary {
    pub task_id: String,
    pub name: String,
    pub title: String,
    pub status: Status,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Create {
    /// Short, lowercase, with hyphens, as people would say it: `deploy-docs`. Made of the title when not
    /// given; one that is taken gets a number.
    #[schemars(length(max = MAX_TITLE_BYTES))]
    pub name: Option<String>,
    /// One line. The name when not given.
    #[schemars(length(max = MAX_TITLE_BYTES))]
    pub title: Option<String>,
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    pub description: Option<String>,
    /// Each can be answered with yes or no.
    #[schemars(length(max = MAX_CRITERIA))]
    pub acceptance_criteria: Vec<String>,
    /// Where it stands among its neighbours; lower comes first.
    pub order: Option<i64>,
    /// Ids or names of tasks in the same project (or of the same user, without a project) that must be
    /// completed first.
    #[schemars(length(max = MAX_DEPENDENCIES))]
    pub depends_on: Vec<String>,
    pub project_id: Option<ScopeId>,
    pub user_id: Option<ScopeId>,
    /// The task that this is a part of. Project and user are taken from it when not given.
    pub parent_task_id: Option<ScopeId>,
    pub schedule_id: Option<ScopeId>,
    pub run_id: Option<ScopeId>,
}

tool!("db.task.create": Create => Task);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// The id of the task, or its name if no other task is called so.
    pub task_id: ScopeId,
}

tool!("db.task.get": Get => Task);

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Only tasks of this project.
    pub project_id: Option<ScopeId>,
    /// Only tasks of this user.
    pub user_id: Option<ScopeId>,
    /// Only tasks in this status.
    pub status: Option<Status>,
    /// Only parts of this task.
    pub parent_task_id: Option<ScopeId>,
    /// Only tasks with this text in their name, title or description.
    #[schemars(length(max = 200))]
    pub text: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("db.task.list": List => Page<ListItem>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TaskListItem))]
pub struct ListItem {
    pub task_id: String,
    pub name: String,
    pub title: String,
    pub status: Status,
    pub project_id: Option<String>,
    pub user_id: Option<String>,
    pub parent_task_id: Option<String>,
    pub order: i64,
    pub version: i64,
    pub updated_at: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    pub task_id: ScopeId,
    #[schemars(length(max = MAX_TITLE_BYTES))]
    pub title: Option<String>,
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    pub description: Option<String>,
    /// The complete list, which replaces the present one.
    #[schemars(length(max = MAX_CRITERIA))]
    pub acceptance_criteria: Option<Vec<String>>,
    /// Where it stands among its neighbours; lower comes first.
    pub order: Option<i64>,
    /// The version that was read. When the task has another one by now, nothing is changed.
    pub expected_version: Option<i64>,
}

tool!("db.task.update": Update => Task);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateStatus {
    pub task_id: ScopeId,
    pub status: Status,
    /// The version that was read. When the task has another one by now, nothing is changed.
    pub expected_version: Option<i64>,
}

tool!("db.task.update_status": UpdateStatus => StatusUpdate);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusUpdate {
    pub task: Task,
    /// Tasks that depended on it and were cancelled with it: the first hundred.
    pub also_canceled: Vec<TaskSummary>,
    pub also_canceled_count: usize,
}
