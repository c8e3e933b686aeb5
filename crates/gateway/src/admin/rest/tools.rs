use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    extract::{Body, By},
    refusal::{Refusal, Refused},
};
use crate::admin::{
    Admin,
    operations::{Difference, Tool, ToolChange, ToolDetails, Waiting},
};

/// What was looked at.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Approval {
    /// `offered_hash` of what was looked at.
    hash: String,
}

/// List tools
#[utoipa::path(
    get, path = "/api/v1/tools", tag = "tools", operation_id = "tools_list",
    responses((status = 200, description = "OK", body = [Tool]), Refused),
)]
pub(super) async fn list(State(admin): State<Arc<Admin>>, By(actor): By) -> Result<Json<Vec<Tool>>, Refusal> {
    Ok(Json(admin.list_tools(&actor).await?))
}

/// Get a tool with its schemas
#[utoipa::path(
    get, path = "/api/v1/tools/{name}", tag = "tools", operation_id = "tools_get",
    params(("name" = String, Path)),
    responses((status = 200, description = "OK", body = ToolDetails), Refused),
)]
pub(super) async fn get(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(name): Path<String>,
) -> Result<Json<ToolDetails>, Refusal> {
    Ok(Json(admin.get_tool(&actor, &name).await?))
}

/// Switch a tool on or off, or set its scope
#[utoipa::path(
    patch, path = "/api/v1/tools/{name}", tag = "tools", operation_id = "tools_set",
    params(("name" = String, Path)),
    request_body = ToolChange,
    responses((status = 200, description = "OK", body = Tool), Refused),
)]
pub(super) async fn set(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(name): Path<String>,
    Body(change): Body<ToolChange>,
) -> Result<Json<Tool>, Refusal> {
    Ok(Json(admin.set_tool(&actor, &name, change).await?))
}

/// List tools that wait for approval
#[utoipa::path(
    get, path = "/api/v1/quarantine", tag = "tools", operation_id = "tools_quarantine",
    responses((status = 200, description = "OK", body = [Waiting]), Refused),
)]
pub(super) async fn quarantine(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
) -> Result<Json<Vec<Waiting>>, Refusal> {
    Ok(Json(admin.list_quarantine(&actor).await?))
}

/// Show what changed about a tool
#[utoipa::path(
    get, path = "/api/v1/quarantine/{namespace}/{remote}", tag = "tools", operation_id = "tools_diff",
    params(("namespace" = String, Path), ("remote" = String, Path, description = "Name of the tool at its upstream")),
    responses((status = 200, description = "OK", body = Difference), Refused),
)]
pub(super) async fn diff(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path((namespace, remote)): Path<(String, String)>,
) -> Result<Json<Difference>, Refusal> {
    Ok(Json(admin.diff_tool(&actor, &namespace, &remote).await?))
}

/// Approve what a server offers
#[utoipa::path(
    post, path = "/api/v1/quarantine/{namespace}/{remote}/approve", tag = "tools", operation_id = "tools_approve",
    params(("namespace" = String, Path), ("remote" = String, Path, description = "Name of the tool at its upstream")),
    request_body = Approval,
    responses((status = 204, description = "OK"), Refused),
)]
pub(super) async fn approve(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path((namespace, remote)): Path<(String, String)>,
    Body(approval): Body<Approval>,
) -> Result<StatusCode, Refusal> {
    admin.approve_tool(&actor, &namespace, &remote, &approval.hash).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keep a tool out
#[utoipa::path(
    post, path = "/api/v1/quarantine/{namespace}/{remote}/reject", tag = "tools", operation_id = "tools_reject",
    params(("namespace" = String, Path), ("remote" = String, Path, description = "Name of the tool at its upstream")),
    responses((status = 204, description = "OK"), Refused),
)]
pub(super) async fn reject(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path((namespace, remote)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    admin.reject_tool(&actor, &namespace, &remote).await?;
    Ok(StatusCode::NO_CONTENT)
}
