//! REST handlers of tools and of the quarantine.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{
    extract::{Authenticated, Body},
    refusal::{Refusal, Refusals},
};
use crate::{
    Admin,
    operations::{Difference, QuarantinedTool, Tool, ToolChange, ToolDetails},
};

/// The reviewed version of a tool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Approval {
    /// `offered_hash` of the reviewed version.
    hash: String,
}

/// List tools
#[utoipa::path(
    get, path = "/api/v1/tools", tag = "tools", operation_id = "tools_list",
    responses((status = 200, description = "OK", body = [Tool]), Refusals),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<Tool>>, Refusal> {
    Ok(Json(admin.list_tools(&actor).await?))
}

/// Get a tool with its schemas
#[utoipa::path(
    get, path = "/api/v1/tools/{name}", tag = "tools", operation_id = "tools_get",
    params(("name" = String, Path)),
    responses((status = 200, description = "OK", body = ToolDetails), Refusals),
)]
pub(super) async fn get(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(name): Path<String>,
) -> Result<Json<ToolDetails>, Refusal> {
    Ok(Json(admin.get_tool(&actor, &name).await?))
}

/// Enable or disable a tool, or set its scope and effect
#[utoipa::path(
    patch, path = "/api/v1/tools/{name}", tag = "tools", operation_id = "tools_set",
    params(("name" = String, Path)),
    request_body = ToolChange,
    responses((status = 200, description = "OK", body = Tool), Refusals),
)]
pub(super) async fn set(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(name): Path<String>,
    Body(change): Body<ToolChange>,
) -> Result<Json<Tool>, Refusal> {
    Ok(Json(admin.set_tool(&actor, &name, change).await?))
}

/// List tools that need approval
#[utoipa::path(
    get, path = "/api/v1/quarantine", tag = "tools", operation_id = "tools_quarantine",
    responses((status = 200, description = "OK", body = [QuarantinedTool]), Refusals),
)]
pub(super) async fn quarantine(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<QuarantinedTool>>, Refusal> {
    Ok(Json(admin.list_quarantine(&actor).await?))
}

/// Show the difference between the approved and the offered version of a tool
#[utoipa::path(
    get, path = "/api/v1/quarantine/{namespace}/{remote}", tag = "tools", operation_id = "tools_diff",
    params(
        ("namespace" = String, Path),
        ("remote" = String, Path, description = "Name of the tool at its upstream"),
    ),
    responses((status = 200, description = "OK", body = Difference), Refusals),
)]
pub(super) async fn diff(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path((namespace, remote)): Path<(String, String)>,
) -> Result<Json<Difference>, Refusal> {
    Ok(Json(admin.diff_tool(&actor, &namespace, &remote).await?))
}

/// Approve the offered version of a tool
#[utoipa::path(
    post, path = "/api/v1/quarantine/{namespace}/{remote}/approve", tag = "tools",
    operation_id = "tools_approve",
    params(
        ("namespace" = String, Path),
        ("remote" = String, Path, description = "Name of the tool at its upstream"),
    ),
    request_body = Approval,
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn approve(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path((namespace, remote)): Path<(String, String)>,
    Body(approval): Body<Approval>,
) -> Result<StatusCode, Refusal> {
    admin.approve_tool(&actor, &namespace, &remote, &approval.hash).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reject a tool
#[utoipa::path(
    post, path = "/api/v1/quarantine/{namespace}/{remote}/reject", tag = "tools",
    operation_id = "tools_reject",
    params(
        ("namespace" = String, Path),
        ("remote" = String, Path, description = "Name of the tool at its upstream"),
    ),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn reject(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path((namespace, remote)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    admin.reject_tool(&actor, &namespace, &remote).await?;
    Ok(StatusCode::NO_CONTENT)
}
