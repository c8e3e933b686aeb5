//! REST handlers of jobs in sandboxes.

use api::{Job, JobFilter, JobLog, JobLogPosition, JobSummary};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Query},
    refusal::Refusals,
};

/// List jobs, newest first
#[utoipa::path(
    get, path = "/api/v1/jobs", tag = "jobs", operation_id = "jobs_list",
    params(JobFilter),
    responses((status = 200, description = "OK", body = [JobSummary]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<JobFilter>,
) -> JsonResult<Vec<JobSummary>> {
    Ok(Json(admin.list_jobs(&actor, &filter).await?))
}

/// Get a job
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}", tag = "jobs", operation_id = "jobs_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Job), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Job> {
    Ok(Json(admin.get_job(&actor, &id).await?))
}

/// Read a piece of what a job wrote, in base64
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}/log", tag = "jobs", operation_id = "jobs_log",
    params(("id" = String, Path), JobLogPosition),
    responses((status = 200, description = "OK", body = JobLog), Refusals),
)]
pub(super) async fn log(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
    Query(position): Query<JobLogPosition>,
) -> JsonResult<JobLog> {
    Ok(Json(admin.read_job_log(&actor, &id, &position).await?))
}

/// Cancel a job
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/cancel", tag = "jobs", operation_id = "jobs_cancel",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Job), Refusals),
)]
pub(super) async fn cancel(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Job> {
    Ok(Json(admin.cancel_job(&actor, &id).await?))
}
