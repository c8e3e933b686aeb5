//! REST handlers of tokens.

use api::{IssuedToken, Me, NewToken, RotatedToken, Token, TokenFilter};
use axum::{Json, extract::Path};
use http::StatusCode;

use super::{
    JsonResult,
    extract::{Authenticated, Body, Query},
    refusal::{Refusal, Refusals},
};

/// Get the holder of the token in use
#[utoipa::path(
    get, path = "/api/v1/me", tag = "tokens", operation_id = "tokens_who",
    responses((status = 200, description = "OK", body = Me), Refusals),
)]
pub(super) async fn who(Authenticated(_admin, actor): Authenticated) -> Json<Me> {
    let (agent, user_id) = (actor.kind().to_owned(), actor.user().map(str::to_owned));
    Json(Me { agent, user_id, token_id: actor.token_id })
}

/// List tokens, newest first
#[utoipa::path(
    get, path = "/api/v1/tokens", tag = "tokens", operation_id = "tokens_list",
    params(TokenFilter),
    responses((status = 200, description = "OK", body = [Token]), Refusals),
)]
pub(super) async fn list(
    Authenticated(admin, actor): Authenticated,
    Query(filter): Query<TokenFilter>,
) -> JsonResult<Vec<Token>> {
    Ok(Json(admin.list_tokens(&actor, &filter).await?))
}

/// Issue a token; its secret is returned only once
#[utoipa::path(
    post, path = "/api/v1/tokens", tag = "tokens", operation_id = "tokens_issue",
    request_body = NewToken,
    responses((status = 201, description = "Created", body = IssuedToken), Refusals),
)]
pub(super) async fn issue(
    Authenticated(admin, actor): Authenticated,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<IssuedToken>), Refusal> {
    Ok((StatusCode::CREATED, Json(admin.issue_token(&actor, new).await?)))
}

/// Rotate the first administrator's token: the gateway's file holds the new one and the old one is revoked
#[utoipa::path(
    post, path = "/api/v1/tokens/rotate-admin", tag = "tokens", operation_id = "tokens_rotate_admin",
    responses((status = 200, description = "Replaced", body = RotatedToken), Refusals),
)]
pub(super) async fn rotate_admin(Authenticated(admin, actor): Authenticated) -> JsonResult<RotatedToken> {
    Ok(Json(admin.rotate_admin_token(&actor).await?))
}

/// Revoke a token, effective immediately
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}", tag = "tokens", operation_id = "tokens_revoke",
    params(("id" = String, Path)),
    responses((status = 200, description = "OK", body = Token), Refusals),
)]
pub(super) async fn revoke(
    Authenticated(admin, actor): Authenticated,
    Path(id): Path<String>,
) -> JsonResult<Token> {
    Ok(Json(admin.revoke_token(&actor, &id).await?))
}
