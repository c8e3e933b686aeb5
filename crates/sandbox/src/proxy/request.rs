//! The head of a request to the proxy: where it goes, and what is passed on.

use policy::{Host, InvalidHost, NetworkHost};

/// The most headers of a request.
const MAX_HEADERS: usize = 64;
const HTTP_PORT: u16 = 80;

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) host: Host,
    pub(super) port: u16,
    /// Whether the connection is passed through from here on.
    pub(super) is_tunnel: bool,
    /// Bytes to send to the server before the rest of the client's data.
    pub(super) forward: Vec<u8>,
}

/// Why a request is not proxied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("not a request to a proxy")]
    NotAProxyRequest,
    #[error("only CONNECT and http:// are proxied")]
    NotProxied,
    #[error("CONNECT needs host:port")]
    NoPort,
    #[error("the host is invalid: {0}")]
    Host(#[from] InvalidHost),
}

/// Reads `CONNECT host:port`, or a request for an absolute `http:` URL.
pub(super) fn parse(head: &[u8]) -> Result<Request, BadRequest> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(head) else {
        return Err(BadRequest::NotAProxyRequest);
    };
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return Err(BadRequest::NotAProxyRequest);
    };
    let rest = head.get(length..).unwrap_or_default();
    if method == "CONNECT" {
        let named: NetworkHost = target.parse()?;
        let port = named.port().ok_or(BadRequest::NoPort)?;
        return Ok(Request { host: named.host().clone(), port, is_tunnel: true, forward: rest.to_vec() });
    }
    let inner = target.strip_prefix("http://").ok_or(BadRequest::NotProxied)?;
    let end = inner.find(['/', '?', '#']).unwrap_or(inner.len());
    let (authority, path) = inner.split_at(end);
    let named: NetworkHost = authority.parse()?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    // One request per connection, so that each is checked; its host is the one that was.
    let mut forward =
        format!("{method} {slash}{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n").into_bytes();
    for header in parsed.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        if name != "host" && name != "connection" && name != "keep-alive" && !name.starts_with("proxy-") {
            forward.extend_from_slice(format!("{}: ", header.name).as_bytes());
            forward.extend_from_slice(header.value);
            forward.extend_from_slice(b"\r\n");
        }
    }
    forward.extend_from_slice(b"\r\n");
    forward.extend_from_slice(rest);
    let port = named.port().unwrap_or(HTTP_PORT);
    Ok(Request { host: named.host().clone(), port, is_tunnel: false, forward })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse::<NetworkHost>().unwrap().host().clone()
    }

    #[test]
    fn connect_and_absolute_urls_are_read() {
        let tunnel = parse(b"CONNECT example.org:443 HTTP/1.1\r\n\r\nrest").unwrap();
        assert_eq!((tunnel.host, tunnel.port, tunnel.is_tunnel), (host("example.org"), 443, true));
        assert_eq!(tunnel.forward, b"rest");
        let plain =
            parse(b"GET http://a.org/x?y HTTP/1.1\r\nHost: b.org\r\nProxy-Auth: s\r\nX: 1\r\n\r\n").unwrap();
        assert_eq!((plain.host, plain.port), (host("a.org"), 80));
        let text = String::from_utf8(plain.forward).unwrap();
        assert_eq!(text, "GET /x?y HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\nX: 1\r\n\r\n");
        assert_eq!(parse(b"CONNECT [::1]:8080 HTTP/1.1\r\n\r\n").unwrap().host, host("[::1]"));
    }

    #[test]
    fn all_else_is_refused_with_its_reason() {
        for (head, why) in [
            ("x", BadRequest::NotAProxyRequest),
            ("GET / HTTP/1.1", BadRequest::NotProxied),
            ("GET https://a.org/ HTTP/1.1", BadRequest::NotProxied),
            ("CONNECT a HTTP/1.1", BadRequest::NoPort),
            ("CONNECT a.org.:443 HTTP/1.1", BadRequest::Host(InvalidHost::Form)),
            ("CONNECT ::1:443 HTTP/1.1", BadRequest::Host(InvalidHost::NoBrackets)),
            ("CONNECT 127.1:443 HTTP/1.1", BadRequest::Host(InvalidHost::Number)),
            ("GET http://2130706433/ HTTP/1.1", BadRequest::Host(InvalidHost::Number)),
            ("GET http://0x7f.1:80/ HTTP/1.1", BadRequest::Host(InvalidHost::Number)),
            ("GET http://u@a/ HTTP/1.1", BadRequest::Host(InvalidHost::Form)),
            ("GET http://a.org%00/ HTTP/1.1", BadRequest::Host(InvalidHost::Form)),
            ("GET http:///x HTTP/1.1", BadRequest::Host(InvalidHost::Form)),
        ] {
            assert_eq!(parse(format!("{head}\r\n\r\n").as_bytes()), Err(why), "{head}");
        }
    }
}
