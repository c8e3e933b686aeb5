use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use subjects::HandoffId;

use super::{
    document::WorkNow,
    extract::{By, Query},
    refusal::{Refusal, Refused},
};
use crate::admin::{
    Admin, Error,
    operations::{DeadFilter, DeadLetter, DeadLetterDetails, Life, ReplayedLetter, Work},
};

/// Look at queues, instances, handoffs in work and the latest answers
#[utoipa::path(
    get, path = "/api/v1/work", tag = "work", operation_id = "work_look",
    responses((status = 200, description = "OK", body = WorkNow), Refused),
)]
pub(super) async fn look(State(admin): State<Arc<Admin>>, By(actor): By) -> Result<Json<Work>, Refusal> {
    Ok(Json(Work::clone(&*admin.look_at_work(&actor).await?)))
}

/// Get a handoff's life: attempts, turns, calls, what it cost, what was answered
#[utoipa::path(
    get, path = "/api/v1/handoffs/{id}", tag = "work", operation_id = "handoffs_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Life), Refused),
)]
pub(super) async fn handoff(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(id): Path<String>,
) -> Result<Json<Life>, Refusal> {
    let id: HandoffId = id.parse().map_err(|_| Error::not_found("handoff", id))?;
    Ok(Json(admin.get_handoff(&actor, id).await?))
}

/// List dead letters, newest first
#[utoipa::path(
    get, path = "/api/v1/dead", tag = "work", operation_id = "dead_list",
    params(DeadFilter),
    responses((status = 200, description = "OK", body = [DeadLetter]), Refused),
)]
pub(super) async fn dead(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Query(filter): Query<DeadFilter>,
) -> Result<Json<Vec<DeadLetter>>, Refusal> {
    Ok(Json(admin.list_dead(&actor, &filter).await?))
}

/// Get a dead letter with the handoff that it was
#[utoipa::path(
    get, path = "/api/v1/dead/{number}", tag = "work", operation_id = "dead_get",
    params(("number" = u64, Path)),
    responses((status = 200, description = "OK", body = DeadLetterDetails), Refused),
)]
pub(super) async fn letter(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(number): Path<String>,
) -> Result<Json<DeadLetterDetails>, Refusal> {
    Ok(Json(admin.get_dead(&actor, read(&number)?).await?))
}

/// Hand a dead letter off again
#[utoipa::path(
    post, path = "/api/v1/dead/{number}/replay", tag = "work", operation_id = "dead_replay",
    params(("number" = u64, Path)),
    responses((status = 200, description = "OK", body = ReplayedLetter), Refused),
)]
pub(super) async fn replay(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(number): Path<String>,
) -> Result<Json<ReplayedLetter>, Refusal> {
    Ok(Json(admin.replay_dead(&actor, read(&number)?).await?))
}

/// Take a dead letter away for good
#[utoipa::path(
    delete, path = "/api/v1/dead/{number}", tag = "work", operation_id = "dead_drop",
    params(("number" = u64, Path)),
    responses((status = 204, description = "OK"), Refused),
)]
pub(super) async fn remove(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(number): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.drop_dead(&actor, read(&number)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn read(number: &str) -> Result<u64, Error> {
    number.parse().map_err(|_| Error::not_found("dead letter", number))
}
