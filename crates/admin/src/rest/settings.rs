//! REST handlers of system settings.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};
use crate::{
    Admin,
    operations::{PutSetting, Setting},
};

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Expected {
    /// Delete only if this is the current version.
    version: Option<i64>,
}

/// List system settings
#[utoipa::path(
    get, path = "/api/v1/settings", tag = "settings", operation_id = "settings_list",
    responses((status = 200, description = "OK", body = [Setting]), Refusals),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<Setting>>, Refusal> {
    Ok(Json(admin.list_settings(&actor).await?))
}

/// Get a system setting
#[utoipa::path(
    get, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "settings_get",
    params(("key" = String, Path)),
    responses((status = 200, description = "OK", body = Setting), Refusals),
)]
pub(super) async fn get(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(key): Path<String>,
) -> Result<Json<Setting>, Refusal> {
    Ok(Json(admin.get_setting(&actor, &key).await?))
}

/// Set a system setting
#[utoipa::path(
    put, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "settings_set",
    params(("key" = String, Path)),
    request_body = PutSetting,
    responses((status = 200, description = "OK", body = Setting), Refusals),
)]
pub(super) async fn set(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(key): Path<String>,
    Body(new): Body<PutSetting>,
) -> Result<Json<Setting>, Refusal> {
    Ok(Json(admin.set_setting(&actor, &key, new).await?))
}

/// Delete a system setting
#[utoipa::path(
    delete, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "settings_delete",
    params(("key" = String, Path), Expected),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(key): Path<String>,
    Query(expected): Query<Expected>,
) -> Result<StatusCode, Refusal> {
    admin.delete_setting(&actor, &key, expected.version).await?;
    Ok(StatusCode::NO_CONTENT)
}
