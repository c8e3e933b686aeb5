//! REST handler of the outbox.

use api::WaitingMessages;
use axum::Json;

use super::{JsonResult, extract::Authenticated, refusal::Refusals};

/// List messages that wait to be published, by subject
#[utoipa::path(
    get, path = "/api/v1/outbox", tag = "outbox", operation_id = "outbox_list",
    responses((status = 200, description = "OK", body = [WaitingMessages]), Refusals),
)]
pub(super) async fn list(Authenticated(admin, actor): Authenticated) -> JsonResult<Vec<WaitingMessages>> {
    Ok(Json(admin.list_waiting_messages(&actor).await?))
}
