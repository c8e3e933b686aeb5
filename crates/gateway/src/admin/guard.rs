use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{ConnectInfo, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{
    Extensions, Method, StatusCode,
    header::{HOST, RETRY_AFTER},
    uri::Authority,
};
use tokio::time::timeout;

use super::{
    Admin, console,
    rest::{self, Refusal},
};
use crate::{
    serve::Trust,
    strangers::{Strangers, TooFast},
};

/// A page of somebody else can have a browser come to us under their name. We know our names.
pub(super) async fn host(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let mut named = request.headers().get_all(HOST).iter();
    let host = match (request.uri().authority(), named.next(), named.next()) {
        (Some(authority), ..) => Some(authority.as_str()),
        (None, Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    if host.is_some_and(|host| is_ours(host, &admin.settings.hosts)) {
        return next.run(request).await;
    }
    let why = "the gateway is not known under this name; admin.hosts has those that it is known under";
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", why).into_response()
}

/// How long a body may take to arrive, and how large it may be. No form and no request of ours is larger.
const BODY_WITHIN: Duration = Duration::from_secs(10);
const LARGEST_BODY: usize = 256 << 10;

/// Slows down those without a good token or session, by address and before anything is looked up. A body is read whole here, so
/// that none trickles in for ever.
pub(super) async fn pace(
    State(admin): State<Arc<Admin>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let secrets: Vec<&str> =
        rest::bearer(request.headers()).into_iter().chain(console::session_id(request.headers())).collect();
    // Signing in has a pace of its own, which sees the token in the form.
    let is_login = request.method() == Method::POST && request.uri().path() == console::LOGIN;
    if !is_login && let Err(wait) = admin.strangers.admit(peer.ip(), &secrets).await {
        return too_fast(wait);
    }
    let (parts, body) = request.into_parts();
    match timeout(BODY_WITHIN, to_bytes(body, LARGEST_BODY)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Err(_)) => {
            let why = format!("a body has at most {LARGEST_BODY} bytes");
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why).into_response()
        }
        Err(_) => {
            Refusal::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not come").into_response()
        }
    }
}

/// A good token or session was shown: its connection stays, and its holder has no pace by address.
pub(super) fn proven(strangers: &Strangers, extensions: &Extensions, secret: &str) {
    if let Some(trust) = extensions.get::<Trust>() {
        trust.gain();
    }
    if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        strangers.proven(peer.ip(), secret);
    }
}

fn too_fast(wait: TooFast) -> Response {
    let why = format!(
        "too many requests from this address without a good token; try again in {} s",
        wait.seconds()
    );
    let mut response = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", why).into_response();
    response.headers_mut().insert(RETRY_AFTER, wait.seconds().into());
    response
}

fn is_ours(host: &str, ours: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = bare(authority.host());
    ours.iter().any(|known| bare(known).eq_ignore_ascii_case(name) || known.eq_ignore_ascii_case(host))
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ours_with_any_port() {
        let ours = ["localhost", "127.0.0.1", "::1", "gateway.internal:8443"].map(str::to_owned);
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:8791", true),
            ("127.0.0.1:1", true),
            ("[::1]:8791", true),
            ("gateway.internal:8443", true),
            ("gateway.internal:1", false),
            ("localhost.evil.example", false),
            ("evil.example", false),
            ("", false),
            ("localhost:x:y", false),
        ] {
            assert_eq!(is_ours(host, &ours), expected, "{host}");
        }
    }
}
