use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    extract::{Body, By, Query},
    refusal::{Refusal, Refused},
};
use crate::admin::{
    Admin,
    operations::{IssuedToken, NewToken, RotatedToken, Token, TokenFilter},
};

/// Whoever asks.
#[derive(Serialize, ToSchema)]
pub(super) struct Me {
    token_id: String,
    /// admin or user.
    agent: &'static str,
    user_id: Option<String>,
}

/// Tell whose token this is
#[utoipa::path(
    get, path = "/api/v1/me", tag = "tokens", operation_id = "tokens_who",
    responses((status = 200, description = "OK", body = Me), Refused),
)]
pub(super) async fn who(By(actor): By) -> Json<Me> {
    let (agent, user_id) = (actor.kind(), actor.user().map(str::to_owned));
    Json(Me { agent, user_id, token_id: actor.token_id })
}

/// List tokens, newest first
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "tokens", operation_id = "tokens_list",
    params(TokenFilter),
    responses((status = 200, description = "OK", body = [Token]), Refused),
)]
pub(super) async fn list(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Query(filter): Query<TokenFilter>,
) -> Result<Json<Vec<Token>>, Refusal> {
    Ok(Json(admin.list_tokens(&actor, &filter).await?))
}

/// Issue a token; its secret is told this once
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", operation_id = "tokens_issue",
    request_body = NewToken,
    responses((status = 201, description = "Created", body = IssuedToken), Refused),
)]
pub(super) async fn issue(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<IssuedToken>), Refusal> {
    Ok((StatusCode::CREATED, Json(admin.issue_token(&actor, new).await?)))
}

/// Replace the first administrator's token: the gateway's file holds the new one, and the old one is refused at once
#[utoipa::path(
    post, path = "/api/v1/tokens/rotate-admin", tag = "tokens", operation_id = "tokens_rotate_admin",
    responses((status = 200, description = "Replaced", body = RotatedToken), Refused),
)]
pub(super) async fn rotate_admin(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
) -> Result<Json<RotatedToken>, Refusal> {
    Ok(Json(admin.rotate_admin_token(&actor).await?))
}

/// Revoke a token, at once
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "tokens", operation_id = "tokens_revoke",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Token), Refused),
)]
pub(super) async fn revoke(
    State(admin): State<Arc<Admin>>,
    By(actor): By,
    Path(id): Path<String>,
) -> Result<Json<Token>, Refusal> {
    Ok(Json(admin.revoke_token(&actor, &id).await?))
}
