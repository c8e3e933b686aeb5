//! REST handlers of nodes.

use api::{Drain, Node, RemovedNode};
use axum::{Json, extract::Path};

use super::{
    JsonResult,
    extract::{Authenticated, Body},
    refusal::Refusals,
};

/// List nodes
#[utoipa::path(
    get, path = "/api/v1/nodes", tag = "nodes", operation_id = "nodes_list",
    responses((status = 200, description = "OK", body = [Node]), Refusals),
)]
pub(super) async fn list(Authenticated(admin, actor): Authenticated) -> JsonResult<Vec<Node>> {
    Ok(Json(admin.list_nodes(&actor).await?))
}

/// Get a node
#[utoipa::path(
    get, path = "/api/v1/nodes/{id}", tag = "nodes", operation_id = "nodes_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Node), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Node> {
    Ok(Json(admin.get_node(&actor, &id).await?))
}

/// Cordon a node: it takes no more jobs
#[utoipa::path(
    post, path = "/api/v1/nodes/{id}/cordon", tag = "nodes", operation_id = "nodes_cordon",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Node), Refusals),
)]
pub(super) async fn cordon(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Node> {
    Ok(Json(admin.cordon_node(&actor, &id).await?))
}

/// Uncordon a node: it takes jobs again
#[utoipa::path(
    post, path = "/api/v1/nodes/{id}/uncordon", tag = "nodes", operation_id = "nodes_uncordon",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Node), Refusals),
)]
pub(super) async fn uncordon(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Node> {
    Ok(Json(admin.uncordon_node(&actor, &id).await?))
}

/// Drain a node: cordon it, and hand back the jobs that it still runs after a while
#[utoipa::path(
    post, path = "/api/v1/nodes/{id}/drain", tag = "nodes", operation_id = "nodes_drain",
    params(("id" = String, Path)), request_body = Drain,
    responses((status = 200, description = "OK", body = Node), Refusals),
)]
pub(super) async fn drain(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
    Body(drain): Body<Drain>,
) -> JsonResult<Node> {
    Ok(Json(admin.drain_node(&actor, &id, drain).await?))
}

/// Remove a node that is away
#[utoipa::path(
    delete, path = "/api/v1/nodes/{id}", tag = "nodes", operation_id = "nodes_remove",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = RemovedNode), Refusals),
)]
pub(super) async fn remove(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<RemovedNode> {
    Ok(Json(admin.remove_node(&actor, &id).await?))
}
