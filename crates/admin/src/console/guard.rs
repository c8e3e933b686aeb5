//! Middleware of the console: host name check, security headers, error pages.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use http::{
    HeaderMap, HeaderValue,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    },
};
use tracing::error;

use super::{Console, Failure, session::Session};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Refuses unknown host names against DNS rebinding, turns failures and panics into pages, and sets the
/// security headers of every response.
pub(super) async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let headers = request.headers().clone();
    let mut response = if is_known_host(&console.admin.settings.hosts, &headers) {
        let result = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        result.unwrap_or_else(|_| {
            error!("Console page panicked.");
            Failure::Internal.into_response()
        })
    } else {
        Failure::UnknownHost.into_response()
    };
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        // With a session, the page has the usual navigation; without one, or if it cannot be read, it has
        // none.
        let session = match failure {
            Failure::UnknownHost => None,
            _ => Session::find(&console, &headers).await.ok().flatten(),
        };
        response = failure.page(session.as_ref());
    }
    let answer = response.headers_mut();
    answer.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer.insert(OPENER, HeaderValue::from_static("same-origin"));
    answer.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn is_known_host(hosts: &[String], headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(HOST).iter();
    let (Some(Ok(named)), None) = (named.next().map(HeaderValue::to_str), named.next()) else { return false };
    let name = without_port(named);
    hosts.iter().any(|host| host.eq_ignore_ascii_case(named) || host.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_hosts_are_served() {
        let hosts = ["localhost", "::1", "gateway.internal:8443"].map(str::to_owned);
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:8791", true),
            ("[::1]:8791", true),
            ("gateway.internal:8443", true),
            ("gateway.internal:1", false),
            ("localhost.evil.example", false),
            ("evil.example:80", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            assert_eq!(is_known_host(&hosts, &headers), expected, "{host}");
            headers.append(HOST, HeaderValue::from_static("localhost"));
            assert!(!is_known_host(&hosts, &headers), "two names");
        }
        assert!(!is_known_host(&hosts, &HeaderMap::new()));
    }
}
