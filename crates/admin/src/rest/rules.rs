//! REST handlers of access rules.

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
    operations::{AccessRule, NewRule},
};

/// The ids of all rules, each once, in the order of evaluation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    ids: Vec<String>,
}

/// List rules in the order of evaluation
#[utoipa::path(
    get, path = "/api/v1/rules", tag = "rules", operation_id = "rules_list",
    responses((status = 200, description = "OK", body = [AccessRule]), Refusals),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<Vec<AccessRule>>, Refusal> {
    Ok(Json(admin.list_rules(&actor).await?))
}

/// Add a rule
#[utoipa::path(
    post, path = "/api/v1/rules", tag = "rules", operation_id = "rules_add",
    request_body = NewRule,
    responses((status = 201, description = "Created", body = AccessRule), Refusals),
)]
pub(super) async fn add(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Body(new): Body<NewRule>,
) -> Result<(StatusCode, Json<AccessRule>), Refusal> {
    Ok((StatusCode::CREATED, Json(admin.add_rule(&actor, new).await?)))
}

/// Reorder the rules
#[utoipa::path(
    put, path = "/api/v1/rules/order", tag = "rules", operation_id = "rules_reorder",
    request_body = Order,
    responses((status = 200, description = "OK", body = [AccessRule]), Refusals),
)]
pub(super) async fn reorder(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Body(order): Body<Order>,
) -> Result<Json<Vec<AccessRule>>, Refusal> {
    Ok(Json(admin.reorder_rules(&actor, order.ids).await?))
}

/// Remove a rule
#[utoipa::path(
    delete, path = "/api/v1/rules/{id}", tag = "rules", operation_id = "rules_remove",
    params(("id" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn remove(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.remove_rule(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
