use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header::HOST, uri::Authority};

use super::{Admin, rest::Refusal};

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
