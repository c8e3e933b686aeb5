//! REST handlers of system settings.

use api::{PutSetting, Setting};
use axum::{Json, extract::Path};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Expected {
    /// Delete only if this is the current version.
    pub(super) version: Option<i64>,
}

/// List system settings
#[utoipa::path(
    get, path = "/api/v1/settings", tag = "settings", operation_id = "settings_list",
    responses((status = 200, description = "OK", body = [Setting]), Refusals),
)]
pub(super) async fn list(Authenticated(admin, actor): Authenticated) -> JsonResult<Vec<Setting>> {
    Ok(Json(admin.list_settings(&actor).await?))
}

/// Get a system setting
#[utoipa::path(
    get, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "settings_get",
    params(("key" = String, Path)),
    responses((status = 200, description = "OK", body = Setting), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(key): Path<String>,
) -> JsonResult<Setting> {
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
    Authenticated(admin, actor): Authenticated,
    Path(key): Path<String>,
    Body(new): Body<PutSetting>,
) -> JsonResult<Setting> {
    Ok(Json(admin.set_setting(&actor, &key, new).await?))
}

/// Delete a system setting
#[utoipa::path(
    delete, path = "/api/v1/settings/{key}", tag = "settings", operation_id = "settings_delete",
    params(("key" = String, Path), Expected),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete(
    Authenticated(admin, actor): Authenticated,
    Path(key): Path<String>,
    Query(expected): Query<Expected>,
) -> Result<StatusCode, Refusal> {
    admin.delete_setting(&actor, &key, expected.version).await?;
    Ok(StatusCode::NO_CONTENT)
}
