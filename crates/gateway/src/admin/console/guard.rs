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

/// Refuses names that are not ours, so that no other site's name leads here, and gives every answer its headers.
pub(super) async fn guard(State(console): State<Arc<Console>>, request: Request, next: Next) -> Response {
    let headers = request.headers().clone();
    let mut response = if is_ours(&console.admin.settings.hosts, &headers) {
        let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
        answered.unwrap_or_else(|_| {
            error!("Console page panicked.");
            Failure::Broken.into_response()
        })
    } else {
        Failure::Host.into_response()
    };
    if let Some(failure) = response.extensions_mut().remove::<Failure>() {
        // Who is in sees the frame that they know. If that cannot be found out, there is a page all the same.
        let session = match failure {
            Failure::Host => None,
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

fn is_ours(hosts: &[String], headers: &HeaderMap) -> bool {
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
    fn only_names_of_ours_are_answered() {
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
            assert_eq!(is_ours(&hosts, &headers), expected, "{host}");
            headers.append(HOST, HeaderValue::from_static("localhost"));
            assert!(!is_ours(&hosts, &headers), "two names");
        }
        assert!(!is_ours(&hosts, &HeaderMap::new()));
    }
}
