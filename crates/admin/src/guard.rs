//! Middleware in front of REST and console: host name check, rate limit for unauthenticated clients, body
//! limits.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode, header::RETRY_AFTER};
use tokio::time::timeout;

use super::{
    Admin, console,
    rest::{self, Refusal},
};
use access::unauthenticated::RetryAfter;
use listener::hosts;

/// Refuses requests for host names that `admin.hosts` does not list.
pub(super) async fn check_host(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let host = hosts::requested(request.uri(), request.headers());
    if host.is_some_and(|host| hosts::is_known(&host, &admin.settings.hosts)) {
        return next.run(request).await;
    }
    let why = "host name not allowed; admin.hosts lists the allowed names";
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", why).into_response()
}

/// How long a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// More than any form or REST request needs.
const MAX_BODY_BYTES: usize = 256 << 10;
/// A request that changes memories has whole texts.
const MAX_MEMORY_BODY_BYTES: usize = 12 << 20;
const MEMORY_PATH: &str = "/api/v1/memory/";

/// Limits the rate of requests without a valid token or session by address, before anything is looked up.
/// Reads the whole body under a timeout, so that no client can hold a connection with a slow body.
pub(super) async fn limit_rate(
    State(admin): State<Arc<Admin>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let secrets: Vec<&str> =
        rest::bearer(request.headers()).into_iter().chain(console::session_id(request.headers())).collect();
    // The login form has its own limit, which sees the token in the form.
    let is_login = request.method() == Method::POST && request.uri().path() == console::LOGIN;
    if !is_login && let Err(wait) = admin.unauthenticated.admit(peer.ip(), &secrets).await {
        return rate_limited(wait);
    }
    let (parts, body) = request.into_parts();
    let has_texts = parts.method == Method::POST && parts.uri.path().starts_with(MEMORY_PATH);
    let limit = if has_texts { MAX_MEMORY_BODY_BYTES } else { MAX_BODY_BYTES };
    match timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Err(_)) => {
            let why = format!("the body must have at most {limit} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why).into_response()
        }
        Err(_) => Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time")
            .into_response(),
    }
}

fn rate_limited(wait: RetryAfter) -> Response {
    let why = format!(
        "too many requests from this address without a valid token; try again in {} s",
        wait.seconds()
    );
    let mut response = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", why).into_response();
    response.headers_mut().insert(RETRY_AFTER, wait.seconds().into());
    response
}
