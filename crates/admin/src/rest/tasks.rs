//! REST handlers of tasks.

use api::{Task, TaskFilter, TaskListItem};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Query},
    refusal::Refusals,
};

/// List tasks, last changed first
#[utoipa::path(
    get, path = "/api/v1/tasks", tag = "tasks", operation_id = "tasks_list",
    params(TaskFilter),
    responses((status = 200, description = "OK", body = [TaskListItem]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<TaskFilter>,
) -> JsonResult<Vec<TaskListItem>> {
    Ok(Json(admin.list_tasks(&actor, &filter).await?))
}

/// Get a task by its id, or by its name if no other task is called so
#[utoipa::path(
    get, path = "/api/v1/tasks/{id}", tag = "tasks", operation_id = "tasks_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Task), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Task> {
    Ok(Json(admin.get_task(&actor, &id).await?))
}
