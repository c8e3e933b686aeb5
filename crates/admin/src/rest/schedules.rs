//! REST handlers of schedules.

use api::{
    DeletedSchedule, NewSchedule, PreviewedSchedule, Schedule, ScheduleChange, ScheduleDetails,
    ScheduleFilter, ScheduleOwner, SchedulePreview, ScheduleRun, ScheduleRunFilter,
};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::Refusals,
    settings::Expected,
};

/// List schedules by name, without their payloads
#[utoipa::path(
    get, path = "/api/v1/schedules", tag = "schedules", operation_id = "schedules_list",
    params(ScheduleFilter),
    responses((status = 200, description = "OK", body = [Schedule]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<ScheduleFilter>,
) -> JsonResult<Vec<Schedule>> {
    Ok(Json(admin.list_schedules(&actor, &filter).await?))
}

/// Create a schedule
#[utoipa::path(
    post, path = "/api/v1/schedules", tag = "schedules", operation_id = "schedules_create",
    params(ScheduleOwner), request_body = NewSchedule,
    responses((status = 200, description = "OK", body = ScheduleDetails), Refusals),
)]
pub(super) async fn create(
    Authenticated(admin, actor): Authenticated,
    Query(owner): Query<ScheduleOwner>,
    Body(new): Body<NewSchedule>,
) -> JsonResult<ScheduleDetails> {
    Ok(Json(admin.create_schedule(&actor, owner.user_id.as_deref(), new).await?))
}

/// Compute the next firings of a timing, without storing anything
#[utoipa::path(
    post, path = "/api/v1/schedules/preview", tag = "schedules", operation_id = "schedules_preview",
    request_body = SchedulePreview,
    responses((status = 200, description = "OK", body = PreviewedSchedule), Refusals),
)]
pub(super) async fn preview(
    Authenticated(admin, actor): Authenticated,
    Body(preview): Body<SchedulePreview>,
) -> JsonResult<PreviewedSchedule> {
    Ok(Json(admin.preview_schedule(&actor, &preview)?))
}

/// Get a schedule with its payload
#[utoipa::path(
    get, path = "/api/v1/schedules/{id}", tag = "schedules", operation_id = "schedules_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = ScheduleDetails), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<ScheduleDetails> {
    Ok(Json(admin.get_schedule(&actor, &id).await?))
}

/// Change, suspend or resume a schedule
#[utoipa::path(
    patch, path = "/api/v1/schedules/{id}", tag = "schedules", operation_id = "schedules_update",
    params(("id" = String, Path)), request_body = ScheduleChange,
    responses((status = 200, description = "OK", body = ScheduleDetails), Refusals),
)]
pub(super) async fn update(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
    Body(change): Body<ScheduleChange>,
) -> JsonResult<ScheduleDetails> {
    Ok(Json(admin.change_schedule(&actor, &id, change).await?))
}

/// Delete a schedule with its runs
#[utoipa::path(
    delete, path = "/api/v1/schedules/{id}", tag = "schedules", operation_id = "schedules_delete",
    params(("id" = String, Path), Expected),
    responses((status = 200, description = "OK", body = DeletedSchedule), Refusals),
)]
pub(super) async fn delete(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
    Query(expected): Query<Expected>,
) -> JsonResult<DeletedSchedule> {
    Ok(Json(admin.delete_schedule(&actor, &id, expected.version).await?))
}

/// Start a run of a schedule now
#[utoipa::path(
    post, path = "/api/v1/schedules/{id}/run", tag = "schedules", operation_id = "schedules_run",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = ScheduleRun), Refusals),
)]
pub(super) async fn run(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<ScheduleRun> {
    Ok(Json(admin.run_schedule(&actor, &id).await?))
}

/// List the runs of a schedule and the slots that were skipped, newest first
#[utoipa::path(
    get, path = "/api/v1/schedules/{id}/runs", tag = "schedules", operation_id = "schedules_runs",
    params(("id" = String, Path), ScheduleRunFilter),
    responses((status = 200, description = "OK", body = [ScheduleRun]), Refusals),
)]
pub(super) async fn runs(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
    Query(filter): Query<ScheduleRunFilter>,
) -> JsonResult<Vec<ScheduleRun>> {
    Ok(Json(admin.list_schedule_runs(&actor, &id, &filter).await?))
}
