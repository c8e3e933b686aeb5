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

/// Refuses addresses with a NUL character, which PostgreSQL takes in no text.
pub(super) async fn check_address(request: Request, next: Next) -> Response {
    let uri = request.uri();
    if uri.path().contains("%00") || uri.query().is_some_and(|query| query.contains("%00")) {
        let why = "the address contains a NUL character (%00)";
        return Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", why).into_response();
    }
    next.run(request).await
}

/// How long a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// More than any form or REST request needs.
const MAX_BODY_BYTES: usize = 256 << 10;
/// A request that changes memories has whole texts, also over a slow link.
const MAX_MEMORY_BODY_BYTES: usize = 12 << 20;
const MEMORY_BODY_TIMEOUT: Duration = Duration::from_secs(120);
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
    let (limit, within) = body_limits(&parts.method, parts.uri.path());
    match timeout(within, to_bytes(body, limit)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Err(_)) => {
            let why = format!("the body must have at most {limit} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why).into_response()
        }
        Err(_) => Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time")
            .into_response(),
    }
}

/// Returns how many bytes the body of a request may have, and how long it may take to arrive.
fn body_limits(method: &Method, path: &str) -> (usize, Duration) {
    match method == Method::POST && path.starts_with(MEMORY_PATH) {
        true => (MAX_MEMORY_BODY_BYTES, MEMORY_BODY_TIMEOUT),
        false => (MAX_BODY_BYTES, BODY_TIMEOUT),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_may_be_large_and_slow() {
        let limits = |method: Method, path: &str| body_limits(&method, path);
        assert_eq!(limits(Method::POST, "/api/v1/memory/default"), (12 << 20, Duration::from_secs(120)));
        for (method, path) in [
            (Method::PUT, "/api/v1/memory/default"),
            (Method::POST, "/api/v1/rules"),
            (Method::POST, "/console/memory/default"),
        ] {
            assert_eq!(limits(method, path), (256 << 10, Duration::from_secs(10)), "{path}");
        }
    }
}
