//! REST handlers of preferences.

use api::{Preference, PreferenceAddress, PreferenceFilter, PutPreference};
use axum::Json;
use http::StatusCode;

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};

/// List preferences
#[utoipa::path(
    get, path = "/api/v1/preferences", tag = "settings", operation_id = "preferences_list",
    params(PreferenceFilter),
    responses((status = 200, description = "OK", body = [Preference]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<PreferenceFilter>,
) -> JsonResult<Vec<Preference>> {
    Ok(Json(admin.list_preferences(&actor, filter).await?))
}

/// Set a preference
#[utoipa::path(
    put, path = "/api/v1/preferences", tag = "settings", operation_id = "preferences_set",
    request_body = PutPreference,
    responses((status = 200, description = "OK", body = Preference), Refusals),
)]
pub(super) async fn set(
    Authenticated(admin, actor): Authenticated,
    Body(new): Body<PutPreference>,
) -> JsonResult<Preference> {
    Ok(Json(admin.set_preference(&actor, new).await?))
}

/// Delete a preference
#[utoipa::path(
    delete, path = "/api/v1/preferences", tag = "settings", operation_id = "preferences_delete",
    params(PreferenceAddress),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete(
    Authenticated(admin, actor): Authenticated,
    Query(at): Query<PreferenceAddress>,
) -> Result<StatusCode, Refusal> {
    admin.delete_preference(&actor, at).await?;
    Ok(StatusCode::NO_CONTENT)
}
