//! REST handlers of tools and of the quarantine.

use api::{Approval, Difference, QuarantinedTool, Tool, ToolChange, ToolDetails};
use axum::{Json, extract::Path};
use http::StatusCode;

use super::{
    JsonResult,
    extract::{Authenticated, Body},
    refusal::{Refusal, Refusals},
};

/// List tools
#[utoipa::path(
    get, path = "/api/v1/tools", tag = "tools", operation_id = "tools_list",
    responses((status = 200, description = "OK", body = [Tool]), Refusals),
)]
pub(super) async fn list(Authenticated(admin, actor): Authenticated) -> JsonResult<Vec<Tool>> {
    Ok(Json(admin.list_tools(&actor).await?))
}

/// Get a tool with its schemas
#[utoipa::path(
    get, path = "/api/v1/tools/{name}", tag = "tools", operation_id = "tools_get",
    params(("name" = String, Path)),
    responses((status = 200, description = "OK", body = ToolDetails), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(name): Path<String>,
) -> JsonResult<ToolDetails> {
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
    Authenticated(admin, actor): Authenticated,
    Path(name): Path<String>,
    Body(change): Body<ToolChange>,
) -> JsonResult<Tool> {
    Ok(Json(admin.set_tool(&actor, &name, change).await?))
}

/// List tools that need approval
#[utoipa::path(
    get, path = "/api/v1/quarantine", tag = "tools", operation_id = "tools_quarantine",
    responses((status = 200, description = "OK", body = [QuarantinedTool]), Refusals),
)]
pub(super) async fn quarantine(
    Authenticated(admin, actor): Authenticated,
) -> JsonResult<Vec<QuarantinedTool>> {
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
    Authenticated(admin, actor): Authenticated,
    Path((namespace, remote)): Path<(String, String)>,
) -> JsonResult<Difference> {
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
    Authenticated(admin, actor): Authenticated,
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
    Authenticated(admin, actor): Authenticated,
    Path((namespace, remote)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    admin.reject_tool(&actor, &namespace, &remote).await?;
    Ok(StatusCode::NO_CONTENT)
}
