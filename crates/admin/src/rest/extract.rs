//! Extractors: the authenticated actor, JSON bodies and query parameters, with errors as JSON.

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

use super::{MAX_BODY_BYTES, refusal::Refusal};
use access::tokens;
use store::clock;

use crate::{Actor, Admin, Error, guard::mark_authenticated};

/// How long a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The actor that the bearer token of the request identifies.
pub(super) struct Authenticated(pub(super) Actor);

impl FromRequestParts<Arc<Admin>> for Authenticated {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, Refusal> {
        let Some(secret) = bearer(&parts.headers) else {
            let why = "send an admin or user token as `Authorization: Bearer …`";
            return Err(unauthenticated(why));
        };
        let presented = tokens::look_up(&admin.store, secret).await.map_err(Error::from)?;
        let actor = Actor::of(&presented, clock::now());
        if actor.is_some() {
            mark_authenticated(&admin.unauthenticated, &parts.extensions, secret);
        }
        actor.map(Self).ok_or_else(|| {
            unauthenticated("invalid admin token: it is unknown, expired, revoked, or an agent token")
        })
    }
}

/// Returns the bearer token of a request; `None` if there is none or more than one `Authorization` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    // A proxy might pick the other one of two headers.
    let (Some(header), None) = (given.next(), given.next()) else { return None };
    let (scheme, secret) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn unauthenticated(why: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, "unauthenticated", why)
}

/// A JSON body. Its content type must be JSON and its size within the limit.
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
        let body = match timeout(BODY_TIMEOUT, to_bytes(request.into_body(), MAX_BODY_BYTES)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                let why = format!("the body must have at most {MAX_BODY_BYTES} bytes");
                return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why));
            }
            Err(_) => {
                return Err(Refusal::new(
                    StatusCode::REQUEST_TIMEOUT,
                    "too_slow",
                    "the body did not arrive in time",
                ));
            }
        };
        serde_json::from_slice(&body).map(Self).map_err(|error| unreadable(&error.to_string()))
    }
}

/// The query parameters of a request.
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
