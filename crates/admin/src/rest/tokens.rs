//! REST handlers of tokens.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};
use crate::{
    Admin,
    operations::{IssuedToken, NewToken, RotatedToken, Token, TokenFilter},
};

/// The holder of the token that sent the request.
#[derive(Serialize, ToSchema)]
pub(super) struct Me {
    token_id: String,
    /// admin or user.
    agent: &'static str,
    user_id: Option<String>,
}

/// Get the holder of the token in use
#[utoipa::path(
    get, path = "/api/v1/me", tag = "tokens", operation_id = "tokens_who",
    responses((status = 200, description = "OK", body = Me), Refusals),
)]
pub(super) async fn who(Authenticated(actor): Authenticated) -> Json<Me> {
    let (agent, user_id) = (actor.kind(), actor.user().map(str::to_owned));
    Json(Me { agent, user_id, token_id: actor.token_id })
}

/// List tokens, newest first
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "tokens", operation_id = "tokens_list",
    params(TokenFilter),
    responses((status = 200, description = "OK", body = [Token]), Refusals),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Query(filter): Query<TokenFilter>,
) -> Result<Json<Vec<Token>>, Refusal> {
    Ok(Json(admin.list_tokens(&actor, &filter).await?))
}

/// Issue a token; its secret is returned only once
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", operation_id = "tokens_issue",
    request_body = NewToken,
    responses((status = 201, description = "Created", body = IssuedToken), Refusals),
)]
pub(super) async fn issue(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<IssuedToken>), Refusal> {
    Ok((StatusCode::CREATED, Json(admin.issue_token(&actor, new).await?)))
}

/// Rotate the first administrator's token: the gateway's file holds the new one and the old one is revoked
#[utoipa::path(
    post, path = "/api/v1/tokens/rotate-admin", tag = "tokens", operation_id = "tokens_rotate_admin",
    responses((status = 200, description = "Replaced", body = RotatedToken), Refusals),
)]
pub(super) async fn rotate_admin(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
) -> Result<Json<RotatedToken>, Refusal> {
    Ok(Json(admin.rotate_admin_token(&actor).await?))
}

/// Revoke a token, effective immediately
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "tokens", operation_id = "tokens_revoke",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Token), Refusals),
)]
pub(super) async fn revoke(
    State(admin): State<Arc<Admin>>,
    Authenticated(actor): Authenticated,
    Path(id): Path<String>,
) -> Result<Json<Token>, Refusal> {
    Ok(Json(admin.revoke_token(&actor, &id).await?))
}
