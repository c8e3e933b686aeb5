use std::{sync::Arc, time::Duration};

use axum::{
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Request},
};
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{LARGEST_BODY, refusal::Refusal};
use crate::{
    admin::{Actor, Admin, Error, guard::proven},
    clock, tokens,
};

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whoever asks, by the token that they bring.
pub(super) struct By(pub(super) Actor);

impl FromRequestParts<Arc<Admin>> for By {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, Refusal> {
        let Some(secret) = bearer(&parts.headers) else {
            let why = "bring the token of an administrator or a user as `Authorization: Bearer …`";
            return Err(unauthenticated(why));
        };
        let presented = tokens::present(&admin.store, secret).await.map_err(Error::from)?;
        let actor = Actor::of(&presented, clock::now());
        if actor.is_some() {
            proven(&admin.strangers, &parts.extensions, secret);
        }
        actor.map(Self).ok_or_else(|| {
            unauthenticated("invalid admin token: it is unknown, expired, revoked, or an agent token")
        })
    }
}

pub(in crate::admin) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    // Two of them may be read one way here and another way elsewhere.
    let (Some(header), None) = (given.next(), given.next()) else { return None };
    let (scheme, secret) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn unauthenticated(why: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", why)
}

/// A body that is JSON, and just what is expected.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Admin>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &Arc<Admin>) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
            let why = "send JSON, with `Content-Type: application/json`";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", why));
        }
        let body = match timeout(PATIENCE, to_bytes(request.into_body(), LARGEST_BODY)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                let why = format!("a body has at most {LARGEST_BODY} bytes");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why));
            }
            Err(_) => {
                return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not come"));
            }
        };
        serde_json::from_slice(&body).map(Self).map_err(|error| unreadable(&error.to_string()))
    }
}

/// What stands behind the `?`, and just what is expected.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Admin>> for Query<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Admin>) -> Result<Self, Refusal> {
        let read = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        read.map(|axum::extract::Query(value)| Self(value)).map_err(|error| unreadable(&error.body_text()))
    }
}

fn unreadable(why: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "unreadable", why)
}
