//! REST handlers of upstream servers.

use api::{AddedUpstream, NewUpstream, Refreshed, Upstream, UpstreamChange};
use axum::{Json, extract::Path};
use http::StatusCode;

use super::{
    JsonResult,
    extract::{Authenticated, Body},
    refusal::{Refusal, Refusals},
};

/// List servers
#[utoipa::path(
    get, path = "/api/v1/upstreams", tag = "upstreams", operation_id = "upstreams_list",
    responses((status = 200, description = "OK", body = [Upstream]), Refusals),
)]
pub(super) async fn list(Authenticated(admin, actor): Authenticated) -> JsonResult<Vec<Upstream>> {
    Ok(Json(admin.list_upstreams(&actor).await?))
}

/// Register a server and list its tools
#[utoipa::path(
    post, path = "/api/v1/upstreams", tag = "upstreams", operation_id = "upstreams_add",
    request_body = NewUpstream,
    responses((status = 201, description = "Created", body = AddedUpstream), Refusals),
)]
pub(super) async fn add(
    Authenticated(admin, actor): Authenticated,
    Body(new): Body<NewUpstream>,
) -> Result<(StatusCode, Json<AddedUpstream>), Refusal> {
    Ok((StatusCode::CREATED, Json(Box::pin(admin.add_upstream(&actor, new)).await?)))
}

/// Get a server
#[utoipa::path(
    get, path = "/api/v1/upstreams/{namespace}", tag = "upstreams", operation_id = "upstreams_get",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Upstream), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(namespace): Path<String>,
) -> JsonResult<Upstream> {
    Ok(Json(admin.get_upstream(&actor, &namespace).await?))
}

/// Change the transport, scope or limits of a server
#[utoipa::path(
    patch, path = "/api/v1/upstreams/{namespace}", tag = "upstreams", operation_id = "upstreams_update",
    params(("namespace" = String, Path)),
    request_body = UpstreamChange,
    responses((status = 200, description = "OK", body = Upstream), Refusals),
)]
pub(super) async fn update(
    Authenticated(admin, actor): Authenticated,
    Path(namespace): Path<String>,
    Body(change): Body<UpstreamChange>,
) -> JsonResult<Upstream> {
    Ok(Json(admin.update_upstream(&actor, &namespace, change).await?))
}

/// Remove a server with its tools
#[utoipa::path(
    delete, path = "/api/v1/upstreams/{namespace}", tag = "upstreams", operation_id = "upstreams_remove",
    params(("namespace" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn remove(
    Authenticated(admin, actor): Authenticated,
    Path(namespace): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.remove_upstream(&actor, &namespace).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refresh the tools of a server
#[utoipa::path(
    post, path = "/api/v1/upstreams/{namespace}/refresh", tag = "upstreams",
    operation_id = "upstreams_refresh",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Refreshed), Refusals),
)]
pub(super) async fn refresh(
    Authenticated(admin, actor): Authenticated,
    Path(namespace): Path<String>,
) -> JsonResult<Refreshed> {
    Ok(Json(Box::pin(admin.refresh_upstream(&actor, &namespace)).await?))
}

/// Enable a server
#[utoipa::path(
    post, path = "/api/v1/upstreams/{namespace}/enable", tag = "upstreams", operation_id = "upstreams_enable",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Upstream), Refusals),
)]
pub(super) async fn enable(
    Authenticated(admin, actor): Authenticated,
    Path(namespace): Path<String>,
) -> JsonResult<Upstream> {
    Ok(Json(admin.enable_upstream(&actor, &namespace, true).await?))
}

/// Disable a server and keep its configuration and approvals
#[utoipa::path(
    post, path = "/api/v1/upstreams/{namespace}/disable", tag = "upstreams",
    operation_id = "upstreams_disable",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Upstream), Refusals),
)]
pub(super) async fn disable(
    Authenticated(admin, actor): Authenticated,
    Path(namespace): Path<String>,
) -> JsonResult<Upstream> {
    Ok(Json(admin.enable_upstream(&actor, &namespace, false).await?))
}
