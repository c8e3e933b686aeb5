//! Hosts that jobs may reach, as callers, operators and clients of the proxy write them. Gateway and node use
//! the same parser, so that what one accepts means the same to the other.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// The ports of a host that is written without one.
const USUAL_PORTS: [u16; 2] = [80, 443];

/// A host with an optional port: `pypi.org`, `pypi.org:443`, `192.0.2.7:5432`, `[2001:db8::1]:443`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetworkHost {
    host: Host,
    port: Option<u16>,
}

/// A host without a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// In lower case. Never a number that a resolver reads as an address.
    Name(String),
    Address(IpAddr),
}

/// Why a text is not a host with an optional port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHost {
    #[error(
        "a host is a name such as `pypi.org` or an address, with a port as in `pypi.org:443` or without, and \
         has no scheme, path or pattern"
    )]
    Form,
    #[error(
        "resolvers may take this number for an IPv4 address; write an address as four decimal numbers, as in \
         `192.0.2.7`"
    )]
    Number,
    #[error("an IPv6 address is written in brackets, as in `[2001:db8::1]:443`")]
    NoBrackets,
    #[error("a port is a number from 1 to 65535")]
    Port,
}

impl NetworkHost {
    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Returns whether this names the host and the port. Without a port of its own, it names 80 and 443.
    /// Hosts are compared as they are written: a name is never equal to an address.
    pub fn includes(&self, host: &Host, port: u16) -> bool {
        self.host == *host && self.port.map_or(USUAL_PORTS.contains(&port), |own| own == port)
    }
}

impl FromStr for NetworkHost {
    type Err = InvalidHost;

    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        if let Some(rest) = text.strip_prefix('[') {
            let (address, after) = rest.split_once(']').ok_or(InvalidHost::Form)?;
            let address: Ipv6Addr = address.parse().map_err(|_| InvalidHost::Form)?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(parse_port(port)?),
                None if after.is_empty() => None,
                None => return Err(InvalidHost::Form),
            };
            return Ok(Self { host: Host::Address(address.into()), port });
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(InvalidHost::NoBrackets);
        }
        // What follows the colon of a URL is not meant as a port.
        if text.contains('/') {
            return Err(InvalidHost::Form);
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (parse_host(host)?, Some(parse_port(port)?)),
            None => (parse_host(text)?, None),
        };
        Ok(Self { host, port })
    }
}

fn parse_host(text: &str) -> Result<Host, InvalidHost> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Address(address.into()));
    }
    let is_label = |label: &str| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if text.len() > MAX_NAME_BYTES || !text.split('.').all(is_label) {
        return Err(InvalidHost::Form);
    }
    let name = text.to_ascii_lowercase();
    if name.rsplit('.').next().is_some_and(is_number) {
        return Err(InvalidHost::Number);
    }
    Ok(Host::Name(name))
}

/// Returns whether the last label of a name makes a resolver read the whole as an IPv4 address: `127.1`,
/// `0x7f.1`, `2130706433`, `0177.0.0.0x1`.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn parse_port(text: &str) -> Result<u16, InvalidHost> {
    // `+80` and `080` are numbers too, but nothing else writes ports like this.
    let port = text.parse::<u16>().ok().filter(|port| *port > 0 && port.to_string() == text);
    port.ok_or(InvalidHost::Port)
}

impl fmt::Display for NetworkHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => self.host.fmt(f),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, InvalidHost> {
        text.parse::<NetworkHost>().map(|host| host.to_string())
    }

    #[test]
    fn names_and_addresses_with_an_optional_port_are_read_and_written_in_one_form() {
        for same in [
            "pypi.org",
            "pypi.org:443",
            "localhost:8080",
            "10.0.0.1",
            "10.0.0.1:5432",
            "[::1]:80",
            "[2001:db8::1]",
            "xn--bcher-kva.example",
            "1password.com",
            "3com",
            "host.0xyz",
            "a:65535",
        ] {
            assert_eq!(parse(same).as_deref(), Ok(same));
        }
        assert_eq!(parse("PyPI.org:443").as_deref(), Ok("pypi.org:443"));
        assert_eq!(parse("[2001:DB8:0::1]:1").as_deref(), Ok("[2001:db8::1]:1"));
        assert!(parse(&format!("{}.org", "a".repeat(63))).is_ok());
    }

    #[test]
    fn number_that_a_resolver_takes_for_an_address_is_refused() {
        for number in [
            "1.2",
            "127.1",
            "127.1:80",
            "0x7f.1",
            "0X7F000001",
            "0x7f.0.0.0x1",
            "2130706433",
            "017700000001",
            "0177.0.0.1",
            "127.0.0.01",
            "256.1.1.1",
            "1.2.3.4.5",
            "0",
            "0x",
            "example.1",
        ] {
            assert_eq!(parse(number), Err(InvalidHost::Number), "{number}");
        }
    }

    #[test]
    fn all_else_is_refused_with_its_reason() {
        let long_name = vec!["a".repeat(60); 5].join(".");
        for (text, why) in [
            ("", InvalidHost::Form),
            ("*", InvalidHost::Form),
            ("*.org", InvalidHost::Form),
            ("https://pypi.org", InvalidHost::Form),
            ("pypi.org/simple", InvalidHost::Form),
            ("pypi.org.", InvalidHost::Form),
            ("a b", InvalidHost::Form),
            (" a", InvalidHost::Form),
            ("a..b", InvalidHost::Form),
            ("-a", InvalidHost::Form),
            ("a-.b", InvalidHost::Form),
            ("a\0b", InvalidHost::Form),
            ("a%00", InvalidHost::Form),
            ("u@a", InvalidHost::Form),
            ("bücher.example", InvalidHost::Form),
            ("①②⑦.0.0.1", InvalidHost::Form),
            ("127。0。0。1", InvalidHost::Form),
            (":80", InvalidHost::Form),
            ("[::1", InvalidHost::Form),
            ("[::1]80", InvalidHost::Form),
            ("[fe80::1%eth0]", InvalidHost::Form),
            ("[1.2.3.4]", InvalidHost::Form),
            ("[a]", InvalidHost::Form),
            (&long_name, InvalidHost::Form),
            ("::1", InvalidHost::NoBrackets),
            ("::ffff:127.0.0.1", InvalidHost::NoBrackets),
            ("a:", InvalidHost::Port),
            ("a:0", InvalidHost::Port),
            ("a:080", InvalidHost::Port),
            ("a:+80", InvalidHost::Port),
            ("a:99999", InvalidHost::Port),
            ("a:80:80", InvalidHost::Port),
            ("[::1]:x", InvalidHost::Port),
        ] {
            assert_eq!(parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn host_includes_itself_at_its_port_or_at_the_usual_ones() {
        let includes = |entry: &str, host: &str, port: u16| {
            let host: NetworkHost = host.parse().unwrap();
            entry.parse::<NetworkHost>().unwrap().includes(host.host(), port)
        };
        assert!(includes("a.org", "A.org", 80) && includes("a.org", "a.org", 443));
        assert!(includes("a.org:22", "a.org", 22) && includes("[::1]:22", "[0::1]", 22));
        assert!(!includes("a.org", "a.org", 22) && !includes("a.org:22", "a.org", 443));
        assert!(!includes("a.org", "www.a.org", 443) && !includes("a.org", "xa.org", 443));
        assert!(!includes("localhost", "127.0.0.1", 80) && !includes("127.0.0.1", "[::ffff:127.0.0.1]", 80));
    }
}
