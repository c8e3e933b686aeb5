//! REST handlers of leases.

use api::{IssuedLease, Lease, LeaseFilter, NewLease};
use axum::{Json, extract::Path};
use http::StatusCode;

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};

/// List leases, newest first
#[utoipa::path(
    get, path = "/api/v1/leases", tag = "leases", operation_id = "leases_list",
    params(LeaseFilter),
    responses((status = 200, description = "OK", body = [Lease]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<LeaseFilter>,
) -> JsonResult<Vec<Lease>> {
    Ok(Json(admin.list_leases(&actor, &filter).await?))
}

/// Issue a lease; its signed text is returned only once
#[utoipa::path(
    post, path = "/api/v1/leases", tag = "leases", operation_id = "leases_issue",
    request_body = NewLease,
    responses((status = 201, description = "Created", body = IssuedLease), Refusals),
)]
pub(super) async fn issue(
    Authenticated(admin, actor): Authenticated,
    Body(new): Body<NewLease>,
) -> Result<(StatusCode, Json<IssuedLease>), Refusal> {
    Ok((StatusCode::CREATED, Json(admin.issue_lease(&actor, new).await?)))
}

/// Get a lease
#[utoipa::path(
    get, path = "/api/v1/leases/{id}", tag = "leases", operation_id = "leases_get",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Lease), Refusals),
)]
pub(super) async fn get(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Lease> {
    Ok(Json(admin.get_lease(&actor, &id).await?))
}

/// Revoke a lease and those that were issued under it, effective immediately
#[utoipa::path(
    delete, path = "/api/v1/leases/{id}", tag = "leases", operation_id = "leases_revoke",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Lease), Refusals),
)]
pub(super) async fn revoke(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Lease> {
    Ok(Json(admin.revoke_lease(&actor, &id).await?))
}
