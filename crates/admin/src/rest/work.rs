//! REST handlers of queues, handoffs and dead letters.

use api::{DeadFilter, DeadLetter, DeadLetterDetails, ReplayedLetter};
use axum::{Json, extract::Path};
use http::StatusCode;
use subjects::HandoffId;

use super::{
    JsonResult,
    document::WorkNow,
    extract::{Authenticated, Query},
    refusal::{Refusal, Refusals},
};
use crate::{
    Error,
    operations::{HandoffHistory, Work},
};

/// Get queues, instances, handoffs in progress and the latest answers
#[utoipa::path(
    get, path = "/api/v1/work", tag = "work", operation_id = "work_look",
    responses((status = 200, description = "OK", body = WorkNow), Refusals),
)]
pub(super) async fn status(Authenticated(admin, actor): Authenticated) -> JsonResult<Work> {
    Ok(Json(Work::clone(&*admin.get_work(&actor).await?)))
}

/// Get the history of a handoff: attempts, turns, calls, usage and answer
#[utoipa::path(
    get, path = "/api/v1/handoffs/{id}", tag = "work", operation_id = "handoffs_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = HandoffHistory), Refusals),
)]
pub(super) async fn handoff(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<HandoffHistory> {
    let id: HandoffId = id.parse().map_err(|_| Error::not_found("handoff", id))?;
    Ok(Json(admin.get_handoff(&actor, id).await?))
}

/// List dead letters, newest first
#[utoipa::path(
    get, path = "/api/v1/dead", tag = "work", operation_id = "dead_list",
    params(DeadFilter),
    responses((status = 200, description = "OK", body = [DeadLetter]), Refusals),
)]
pub(super) async fn dead(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<DeadFilter>,
) -> JsonResult<Vec<DeadLetter>> {
    Ok(Json(admin.list_dead(&actor, &filter).await?))
}

/// Get a dead letter with its handoff
#[utoipa::path(
    get, path = "/api/v1/dead/{number}", tag = "work", operation_id = "dead_get",
    params(("number" = u64, Path)),
    responses((status = 200, description = "OK", body = DeadLetterDetails), Refusals),
)]
pub(super) async fn letter(
    Authenticated(admin, actor): Authenticated,
    Path(number): Path<String>,
) -> JsonResult<DeadLetterDetails> {
    Ok(Json(admin.get_dead(&actor, parse_number(&number)?).await?))
}

/// Replay a dead letter
#[utoipa::path(
    post, path = "/api/v1/dead/{number}/replay", tag = "work", operation_id = "dead_replay",
    params(("number" = u64, Path)),
    responses((status = 200, description = "OK", body = ReplayedLetter), Refusals),
)]
pub(super) async fn replay(
    Authenticated(admin, actor): Authenticated,
    Path(number): Path<String>,
) -> JsonResult<ReplayedLetter> {
    Ok(Json(admin.replay_dead(&actor, parse_number(&number)?).await?))
}

/// Drop a dead letter
#[utoipa::path(
    delete, path = "/api/v1/dead/{number}", tag = "work", operation_id = "dead_drop",
    params(("number" = u64, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn remove(
    Authenticated(admin, actor): Authenticated,
    Path(number): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.drop_dead(&actor, parse_number(&number)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn parse_number(number: &str) -> Result<u64, Error> {
    number.parse().map_err(|_| Error::not_found("dead letter", number))
}
