//! Tasks. Their bodies are those of the tools.

pub use contract::task::{ListItem as TaskListItem, Status as TaskStatus, Task};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct TaskFilter {
    pub project_id: Option<String>,
    pub user_id: Option<String>,
    /// Only tasks in this status.
    pub status: Option<TaskStatus>,
    /// Only tasks with this text in their name, title or description.
    pub text: Option<String>,
    /// Default 50, at most 200.
    pub limit: Option<u64>,
    /// How many tasks to skip.
    pub offset: Option<u32>,
}
