//! Marks authenticated requests, for REST and console.

use std::net::SocketAddr;

use access::unauthenticated::UnauthenticatedLimiter;
use axum::extract::ConnectInfo;
use http::Extensions;
use listener::ConnectionAuth;

/// Records that a request carried a valid token or session: its connection is kept and its secret is exempt
/// from the rate limit by address.
pub(super) fn mark_authenticated(
    unauthenticated: &UnauthenticatedLimiter,
    extensions: &Extensions,
    secret: &str,
) {
    if let Some(auth) = extensions.get::<ConnectionAuth>() {
        auth.mark_authenticated();
    }
    if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        unauthenticated.mark_valid(peer.ip(), secret);
    }
}
