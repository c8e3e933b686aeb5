//! REST handlers of preferences.

use std::sync::Arc;

use axum::{Json, extract::State};
use http::StatusCode;

use super::{
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};
use crate::{
    Admin,
    operations::{Preference, PreferenceAddress, PreferenceFilter, PutPreference},
};

/// List preferences
#[utoipa::path(
    get, path = "/api/v1/preferences", tag = "settings", operation_id = "preferences_list",
    params(PreferenceFilter),
    responses((status = 200, description = "OK", body = [Preference]), Refusals),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Query(filter): Query<PreferenceFilter>,
) -> Result<Json<Vec<Preference>>, Refusal> {
    Ok(Json(admin.list_preferences(&actor, filter).await?))
}

/// Set a preference
#[utoipa::path(
    put, path = "/api/v1/preferences", tag = "settings", operation_id = "preferences_set",
    request_body = PutPreference,
    responses((status = 200, description = "OK", body = Preference), Refusals),
)]
pub(super) async fn set(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Body(new): Body<PutPreference>,
) -> Result<Json<Preference>, Refusal> {
    Ok(Json(admin.set_preference(&actor, new).await?))
}

/// Delete a preference
#[utoipa::path(
    delete, path = "/api/v1/preferences", tag = "settings", operation_id = "preferences_delete",
    params(PreferenceAddress),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Query(at): Query<PreferenceAddress>,
) -> Result<StatusCode, Refusal> {
    admin.delete_preference(&actor, at).await?;
    Ok(StatusCode::NO_CONTENT)
}
