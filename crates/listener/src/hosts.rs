//! The host name that a request names. A listener that serves known names only is safe from DNS rebinding: a
//! foreign site whose name resolves to the listener's address.

use axum::http::{HeaderMap, Uri, header::HOST, uri::Authority};

/// Returns the host of a request: the authority of its URI, else its `Host` header. `None` if it names none,
/// or several, or one that cannot be parsed.
pub fn requested(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    if let Some(authority) = uri.authority() {
        return Some(authority.clone());
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => Authority::try_from(host.as_bytes()).ok(),
        _ => None,
    }
}

/// Returns whether `known` lists a host. A name without a port is known with any port.
pub fn is_known(host: &Authority, known: &[String]) -> bool {
    known.iter().map(|known| known.trim()).any(|known| match known.parse::<Authority>() {
        Ok(known) => is_same(known.host(), host) && (known.port().is_none() || known.port() == host.port()),
        // An IPv6 address without brackets.
        Err(_) => is_same(known, host),
    })
}

fn is_same(name: &str, host: &Authority) -> bool {
    let plain = |name: &str| name.trim_matches(['[', ']']).to_ascii_lowercase();
    plain(name) == plain(host.host())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const KNOWN: [&str; 4] = ["localhost", "127.0.0.1", "::1", "gateway.internal:8443"];

    fn is_served(headers: &HeaderMap) -> bool {
        requested(&Uri::from_static("/"), headers)
            .is_some_and(|host| is_known(&host, &KNOWN.map(str::to_owned)))
    }

    #[test]
    fn known_hosts_are_accepted_with_any_port_unless_one_is_configured() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:8791", true),
            ("127.0.0.1:1", true),
            ("[::1]:8791", true),
            ("gateway.internal:8443", true),
            ("gateway.internal:1", false),
            ("localhost.evil.example", false),
            ("evil.example", false),
            ("evil.example:80", false),
            ("", false),
            ("localhost:x:y", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            assert_eq!(is_served(&headers), expected, "{host}");
            headers.append(HOST, HeaderValue::from_static("localhost"));
            assert!(!is_served(&headers), "two names");
        }
        assert!(!is_served(&HeaderMap::new()));
    }

    #[test]
    fn the_authority_of_the_uri_counts_before_the_header() {
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("localhost"))]);
        let host = requested(&Uri::from_static("http://evil.example/"), &headers);
        assert_eq!(host.as_ref().map(Authority::as_str), Some("evil.example"));
    }
}
