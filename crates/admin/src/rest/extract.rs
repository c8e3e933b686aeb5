//! Extractors: the authenticated actor, JSON bodies and query parameters, with errors as JSON.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
    request::Parts,
};
use serde::de::DeserializeOwned;

use super::refusal::Refusal;
use access::tokens;
use store::clock;

use crate::{Actor, Admin, Error, authentication::mark_authenticated};

/// Administration, and the actor that the bearer token of the request identifies.
pub(super) struct Authenticated(pub(super) Arc<Admin>, pub(super) Actor);

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
        actor.map(|actor| Self(admin.clone(), actor)).ok_or_else(|| {
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

/// A JSON body. Its content type must be JSON. `guard::limit_rate` has read it and limits its size.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Admin>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, admin: &Arc<Admin>) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
            let why = "send JSON, with `Content-Type: application/json`";
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", why));
        }
        let body = Bytes::from_request(request, admin).await;
        let body = body.map_err(|error| unreadable(&error.body_text()))?;
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
