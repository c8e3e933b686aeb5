use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;

use super::{
    extract::{Body, By},
    refusal::{Refusal, Refused},
};
use crate::{
    admin::{
        Admin,
        operations::{Added, NewUpstream, Upstream, UpstreamChange},
    },
    upstreams::Refreshed,
};

/// List servers
#[utoipa::path(
    get, path = "/api/v1/upstreams", tag = "upstreams", operation_id = "upstreams_list",
    responses((status = 200, description = "OK", body = [Upstream]), Refused),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
) -> Result<Json<Vec<Upstream>>, Refusal> {
    Ok(Json(admin.list_upstreams(&actor).await?))
}

/// Install a server and ask what it offers
#[utoipa::path(
    post, path = "/api/v1/upstreams", tag = "upstreams", operation_id = "upstreams_add",
    request_body = NewUpstream,
    responses((status = 201, description = "Created", body = Added), Refused),
)]
pub(super) async fn add(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Body(new): Body<NewUpstream>,
) -> Result<(StatusCode, Json<Added>), Refusal> {
    Ok((StatusCode::CREATED, Json(Box::pin(admin.add_upstream(&actor, new)).await?)))
}

/// Get a server
#[utoipa::path(
    get, path = "/api/v1/upstreams/{namespace}", tag = "upstreams", operation_id = "upstreams_get",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Upstream), Refused),
)]
pub(super) async fn get(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(namespace): Path<String>,
) -> Result<Json<Upstream>, Refusal> {
    Ok(Json(admin.get_upstream(&actor, &namespace).await?))
}

/// Change how a server is reached and used
#[utoipa::path(
    patch, path = "/api/v1/upstreams/{namespace}", tag = "upstreams", operation_id = "upstreams_update",
    params(("namespace" = String, Path)),
    request_body = UpstreamChange,
    responses((status = 200, description = "OK", body = Upstream), Refused),
)]
pub(super) async fn update(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(namespace): Path<String>,
    Body(change): Body<UpstreamChange>,
) -> Result<Json<Upstream>, Refusal> {
    Ok(Json(admin.update_upstream(&actor, &namespace, change).await?))
}

/// Remove a server with its tools
#[utoipa::path(
    delete, path = "/api/v1/upstreams/{namespace}", tag = "upstreams", operation_id = "upstreams_remove",
    params(("namespace" = String, Path)),
    responses((status = 204, description = "OK"), Refused),
)]
pub(super) async fn remove(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(namespace): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.remove_upstream(&actor, &namespace).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ask a server what it offers now
#[utoipa::path(
    post, path = "/api/v1/upstreams/{namespace}/refresh", tag = "upstreams", operation_id = "upstreams_refresh",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Refreshed), Refused),
)]
pub(super) async fn refresh(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(namespace): Path<String>,
) -> Result<Json<Refreshed>, Refusal> {
    Ok(Json(Box::pin(admin.refresh_upstream(&actor, &namespace)).await?))
}

/// Use a server again
#[utoipa::path(
    post, path = "/api/v1/upstreams/{namespace}/enable", tag = "upstreams", operation_id = "upstreams_enable",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Upstream), Refused),
)]
pub(super) async fn enable(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(namespace): Path<String>,
) -> Result<Json<Upstream>, Refusal> {
    Ok(Json(admin.enable_upstream(&actor, &namespace, true).await?))
}

/// Use a server no more, and keep what is known about it
#[utoipa::path(
    post, path = "/api/v1/upstreams/{namespace}/disable", tag = "upstreams", operation_id = "upstreams_disable",
    params(("namespace" = String, Path)),
    responses((status = 200, description = "OK", body = Upstream), Refused),
)]
pub(super) async fn disable(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(namespace): Path<String>,
) -> Result<Json<Upstream>, Refusal> {
    Ok(Json(admin.enable_upstream(&actor, &namespace, false).await?))
}
