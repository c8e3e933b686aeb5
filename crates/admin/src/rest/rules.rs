//! REST handlers of access rules.

use api::{AccessRule, NewRule, RuleOrder};
use axum::{Json, extract::Path};
use http::StatusCode;

use super::{
    JsonResult,
    extract::{Authenticated, Body},
    refusal::{Refusal, Refusals},
};

/// List rules in the order of evaluation
#[utoipa::path(
    get, path = "/api/v1/rules", tag = "rules", operation_id = "rules_list",
    responses((status = 200, description = "OK", body = [AccessRule]), Refusals),
)]
pub(super) async fn list(Authenticated(admin, actor): Authenticated) -> JsonResult<Vec<AccessRule>> {
    Ok(Json(admin.list_rules(&actor).await?))
}

/// Add a rule
#[utoipa::path(
    post, path = "/api/v1/rules", tag = "rules", operation_id = "rules_add",
    request_body = NewRule,
    responses((status = 201, description = "Created", body = AccessRule), Refusals),
)]
pub(super) async fn add(
    Authenticated(admin, actor): Authenticated,
    Body(new): Body<NewRule>,
) -> Result<(StatusCode, Json<AccessRule>), Refusal> {
    Ok((StatusCode::CREATED, Json(admin.add_rule(&actor, new).await?)))
}

/// Reorder the rules
#[utoipa::path(
    put, path = "/api/v1/rules/order", tag = "rules", operation_id = "rules_reorder",
    request_body = RuleOrder,
    responses((status = 200, description = "OK", body = [AccessRule]), Refusals),
)]
pub(super) async fn reorder(
    Authenticated(admin, actor): Authenticated,
    Body(order): Body<RuleOrder>,
) -> JsonResult<Vec<AccessRule>> {
    Ok(Json(admin.reorder_rules(&actor, order.ids).await?))
}

/// Remove a rule
#[utoipa::path(
    delete, path = "/api/v1/rules/{id}", tag = "rules", operation_id = "rules_remove",
    params(("id" = String, Path)),
    responses((status = 204, description = "OK"), Refusals),
)]
pub(super) async fn remove(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    admin.remove_rule(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
