//! REST handler of the egress.

use api::{ProviderUsage, UsageFilter};
use axum::Json;

use super::{
    JsonResult,
    extract::{Authenticated, Query},
    refusal::Refusals,
};

/// List usage of external providers, newest first
#[utoipa::path(
    get, path = "/api/v1/egress/usage", tag = "egress", operation_id = "egress_usage",
    params(UsageFilter),
    responses((status = 200, description = "OK", body = [ProviderUsage]), Refusals),
)]
pub(super) async fn usage(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<UsageFilter>,
) -> JsonResult<Vec<ProviderUsage>> {
    Ok(Json(admin.list_usage(&actor, &filter).await?))
}
