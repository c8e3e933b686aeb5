//! REST handlers of workflows. A task is named by its id, or by its name if no other task is called so.

use api::{
    CancelWorkflow, ResumeWorkflow, RetryWorkflow, StartWorkflow, Workflow, WorkflowDetails, WorkflowFilter,
};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::Refusals,
};
use crate::operations::Steering;

/// List workflows, last changed first
#[utoipa::path(
    get, path = "/api/v1/workflows", tag = "workflows", operation_id = "workflows_list",
    params(WorkflowFilter),
    responses((status = 200, description = "OK", body = [Workflow]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<WorkflowFilter>,
) -> JsonResult<Vec<Workflow>> {
    Ok(Json(admin.list_workflows(&actor, &filter).await?))
}

/// Get the workflow of a task, with its state, its jobs and handoffs, and what happened last
#[utoipa::path(
    get, path = "/api/v1/workflows/{task}", tag = "workflows", operation_id = "workflows_get",
    params(("task" = String, Path)),
    responses((status = 200, description = "OK", body = WorkflowDetails), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(task): Path<String>,
) -> JsonResult<WorkflowDetails> {
    Ok(Json(admin.get_workflow(&actor, &task).await?))
}

/// Start the workflow of a task; one that is active is returned as it is
#[utoipa::path(
    post, path = "/api/v1/workflows/{task}/start", tag = "workflows", operation_id = "workflows_start",
    params(("task" = String, Path)), request_body = StartWorkflow,
    responses((status = 200, description = "OK", body = Workflow), Refusals),
)]
pub(super) async fn start(
    Authenticated(admin, actor): Authenticated,
    Path(task): Path<String>,
    Body(start): Body<StartWorkflow>,
) -> JsonResult<Workflow> {
    Ok(Json(admin.steer_workflow(&actor, &task, Steering::Start(start)).await?))
}

/// End a workflow with its jobs and handoffs, and cancel its task
#[utoipa::path(
    post, path = "/api/v1/workflows/{task}/cancel", tag = "workflows", operation_id = "workflows_cancel",
    params(("task" = String, Path)), request_body = CancelWorkflow,
    responses((status = 200, description = "OK", body = Workflow), Refusals),
)]
pub(super) async fn cancel(
    Authenticated(admin, actor): Authenticated,
    Path(task): Path<String>,
    Body(CancelWorkflow { reason }): Body<CancelWorkflow>,
) -> JsonResult<Workflow> {
    Ok(Json(admin.steer_workflow(&actor, &task, Steering::Cancel { reason }).await?))
}

/// Take a workflow from its runner until it is resumed
#[utoipa::path(
    post, path = "/api/v1/workflows/{task}/pause", tag = "workflows", operation_id = "workflows_pause",
    params(("task" = String, Path)),
    responses((status = 200, description = "OK", body = Workflow), Refusals),
)]
pub(super) async fn pause(
    Authenticated(admin, actor): Authenticated,
    Path(task): Path<String>,
) -> JsonResult<Workflow> {
    Ok(Json(admin.steer_workflow(&actor, &task, Steering::Pause).await?))
}

/// Resume a workflow that is paused, or that waits for an answer
#[utoipa::path(
    post, path = "/api/v1/workflows/{task}/resume", tag = "workflows", operation_id = "workflows_resume",
    params(("task" = String, Path)), request_body = ResumeWorkflow,
    responses((status = 200, description = "OK", body = Workflow), Refusals),
)]
pub(super) async fn resume(
    Authenticated(admin, actor): Authenticated,
    Path(task): Path<String>,
    Body(answer): Body<ResumeWorkflow>,
) -> JsonResult<Workflow> {
    Ok(Json(admin.steer_workflow(&actor, &task, Steering::Resume(answer)).await?))
}

/// Retry a workflow that failed or was cancelled
#[utoipa::path(
    post, path = "/api/v1/workflows/{task}/retry", tag = "workflows", operation_id = "workflows_retry",
    params(("task" = String, Path)), request_body = RetryWorkflow,
    responses((status = 200, description = "OK", body = Workflow), Refusals),
)]
pub(super) async fn retry(
    Authenticated(admin, actor): Authenticated,
    Path(task): Path<String>,
    Body(RetryWorkflow { from_start }): Body<RetryWorkflow>,
) -> JsonResult<Workflow> {
    Ok(Json(admin.steer_workflow(&actor, &task, Steering::Retry { from_start }).await?))
}
