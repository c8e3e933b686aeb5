//! REST handlers of the catalogues: projects, personas, nodes, models.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;

use super::{
    extract::{Authenticated, Body},
    refusal::{Refusal, Refusals},
};
use crate::{
    Admin,
    operations::{Model, Node, Persona, Project, PutModel, PutNode, PutPersona, PutProject},
};

/// List projects
#[utoipa::path(
    get, path = "/api/v1/projects", tag = "catalogues", operation_id = "list_projects",
    responses((status = 200, description = "OK", body = [Project]), Refusals),
)]
pub(super) async fn list_projects(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<Project>>, Refusal> {
    Ok(Json(admin.list_projects(&actor).await?))
}

/// Create or replace a project
#[utoipa::path(
    put, path = "/api/v1/projects/{id}", tag = "catalogues", operation_id = "put_project",
    params(("id" = String, Path)),
    request_body = PutProject,
    responses((status = 200, description = "OK", body = Project), Refusals),
)]
pub(super) async fn put_project(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
    Body(new): Body<PutProject>,
) -> Result<Json<Project>, Refusal> {
    Ok(Json(admin.put_project(&actor, &id, new).await?))
}

/// Delete a project
#[utoipa::path(
    delete, path = "/api/v1/projects/{id}", tag = "catalogues", operation_id = "delete_project",
    params(("id" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete_project(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.delete_project(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List personas
#[utoipa::path(
    get, path = "/api/v1/personas", tag = "catalogues", operation_id = "list_personas",
    responses((status = 200, description = "OK", body = [Persona]), Refusals),
)]
pub(super) async fn list_personas(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<Persona>>, Refusal> {
    Ok(Json(admin.list_personas(&actor).await?))
}

/// Create or replace a persona
#[utoipa::path(
    put, path = "/api/v1/personas/{id}", tag = "catalogues", operation_id = "put_persona",
    params(("id" = String, Path)),
    request_body = PutPersona,
    responses((status = 200, description = "OK", body = Persona), Refusals),
)]
pub(super) async fn put_persona(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
    Body(new): Body<PutPersona>,
) -> Result<Json<Persona>, Refusal> {
    Ok(Json(admin.put_persona(&actor, &id, new).await?))
}

/// Delete a persona
#[utoipa::path(
    delete, path = "/api/v1/personas/{id}", tag = "catalogues", operation_id = "delete_persona",
    params(("id" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete_persona(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.delete_persona(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List nodes
#[utoipa::path(
    get, path = "/api/v1/nodes", tag = "catalogues", operation_id = "list_nodes",
    responses((status = 200, description = "OK", body = [Node]), Refusals),
)]
pub(super) async fn list_nodes(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<Node>>, Refusal> {
    Ok(Json(admin.list_nodes(&actor).await?))
}

/// Create or replace a node
#[utoipa::path(
    put, path = "/api/v1/nodes/{id}", tag = "catalogues", operation_id = "put_node",
    params(("id" = String, Path)),
    request_body = PutNode,
    responses((status = 200, description = "OK", body = Node), Refusals),
)]
pub(super) async fn put_node(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
    Body(new): Body<PutNode>,
) -> Result<Json<Node>, Refusal> {
    Ok(Json(admin.put_node(&actor, &id, new).await?))
}

/// Delete a node
#[utoipa::path(
    delete, path = "/api/v1/nodes/{id}", tag = "catalogues", operation_id = "delete_node",
    params(("id" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete_node(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.delete_node(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List models
#[utoipa::path(
    get, path = "/api/v1/models", tag = "catalogues", operation_id = "list_models",
    responses((status = 200, description = "OK", body = [Model]), Refusals),
)]
pub(super) async fn list_models(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<Model>>, Refusal> {
    Ok(Json(admin.list_models(&actor).await?))
}

/// Create or replace a model
#[utoipa::path(
    put, path = "/api/v1/models/{id}", tag = "catalogues", operation_id = "put_model",
    params(("id" = String, Path)),
    request_body = PutModel,
    responses((status = 200, description = "OK", body = Model), Refusals),
)]
pub(super) async fn put_model(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
    Body(new): Body<PutModel>,
) -> Result<Json<Model>, Refusal> {
    Ok(Json(admin.put_model(&actor, &id, new).await?))
}

/// Delete a model
#[utoipa::path(
    delete, path = "/api/v1/models/{id}", tag = "catalogues", operation_id = "delete_model",
    params(("id" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn delete_model(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.delete_model(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
