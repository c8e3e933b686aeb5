//! The fetching itself is done by a server behind us. What can be seen to be wrong before is not sent there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Map, Value};
use url::{Host, Url};

/// Tools that fetch what they are told to.
const FETCHERS: [&str; 2] = ["web.", "api.call"];
const ARGUMENTS: [&str; 3] = ["url", "uri", "base_url"];

/// The first argument with an address that no agent may have fetched.
pub(super) fn forbidden(tool: &str, arguments: &Map<String, Value>) -> Option<&'static str> {
    if !FETCHERS.iter().any(|beginning| tool.starts_with(beginning)) {
        return None;
    }
    ARGUMENTS.into_iter().find(|name| match arguments.get(*name) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !is_public(text),
        Some(_) => true,
    })
}

/// Whether an address can be seen to be outside. The parser is that of browsers: it reads `0x7f.1`, `2130706433` and `①②⑦.0.0.1` as the addresses they are.
pub fn is_public(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && match url.host() {
            None => false,
            Some(Host::Domain(name)) => is_public_name(name),
            Some(Host::Ipv4(address)) => is_public_address(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => is_public_address(IpAddr::V6(address)),
        }
}

fn is_public_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let inside = ["localhost", "local", "internal", "localdomain", "home.arpa"];
    // A name without a dot is resolved with the search list of whoever resolves it.
    name.contains('.') && !inside.iter().any(|end| name == *end || name.ends_with(&format!(".{end}")))
}

fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(inner) => is_public_v4(inner),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // Global unicast is 2000::/3; within it, 2001:db8::/32 is for documents.
    let [first, second, ..] = address.segments();
    first & 0xe000 == 0x2000 && !(first == 0x2001 && second == 0x0db8)
}

/// Addresses of the old kind in new clothes: mapped, translated (64:ff9b::/96), 6to4, Teredo.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let s = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match s {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => Some(join(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        [0x2001, 0, .., high, low] => Some(join(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_are_not_for_agents() {
        for text in [
            "http://169.254.169.254/latest/meta-data",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://①②⑦.0.0.1/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::1]/",
            "http://[fd00::1]/",
            "http://[fe80::1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://100.64.0.1/",
            "http://10.0.0.8/",
            "http://192.168.1.1/",
            "http://0.0.0.0/",
            "http://localhost/",
            "http://LOCALHOST./",
            "http://metadata.google.internal/",
            "http://gateway/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "http://user:password@example.com/",
            "http://example.com@127.0.0.1/",
            "not an address",
        ] {
            assert!(!is_public(text), "{text}");
        }
        for text in ["https://example.com/a?b=c", "http://93.184.216.34/", "https://[2606:4700::1111]/"] {
            assert!(is_public(text), "{text}");
        }
    }
}
