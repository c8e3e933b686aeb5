//! The fetching itself is done by a server behind us. What can be seen to be wrong before is not sent there.
//!
//! Every string in a fetcher's arguments counts, at any depth and under any name: a fetcher may take addresses where its schema
//! says so or where it does not. What a name resolves to, and where a redirect leads, only the fetcher can see.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value};
use url::{Host, Url};

use super::{addresses::is_public_address, url_glob};

/// Tools that fetch what they are told to.
const FETCHERS: [&str; 2] = ["web.", "api.call"];
/// JSON inside a string inside JSON is followed this deep.
const MAX_NESTED: usize = 3;
const MAX_SHOWN: usize = 64;
/// How names end that are resolved inside a machine, a home, a company or a cluster.
const INSIDE_NAMES: [&str; 11] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "svc",
];

/// What a name of an argument says about its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It must be the address of something public.
    Address,
    /// It must be the name of something public.
    HostName,
    Other,
}

pub(super) fn is_fetcher(tool: &str) -> bool {
    FETCHERS.iter().any(|beginning| tool.starts_with(beginning))
}

/// Returns whether a value under this name is an address, as under `url`, `URLs` or `image-uri`.
pub(super) fn names_an_address(name: &str) -> bool {
    role(name) == Role::Address
}

/// Returns the first argument with an address that no agent may have fetched.
pub(super) fn forbidden(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    if !is_fetcher(tool) {
        return None;
    }
    let wrong = |(name, value): &(&String, &Value)| {
        is_forbidden_text(name, Role::Other) || is_forbidden(value, role(name), 0)
    };
    arguments.iter().find(wrong).map(|(name, _)| shown(name))
}

/// Returns every string, at any depth, that a fetcher would read as a URL; with `bare`, also those that it may read as one without
/// its scheme.
pub(super) fn addresses(arguments: &Map<String, Value>, bare: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        collect(value, role(name), 0, &mut |text, role| {
            let is_one = role != Role::Other
                || url_glob::read(text).is_some()
                || is_protocol_relative(text)
                || (bare && looks_like_a_host(text));
            if is_one {
                found.push(text.to_owned());
            }
        });
    }
    found
}

fn collect(value: &Value, role: Role, nested: usize, found: &mut impl FnMut(&str, Role)) {
    match value {
        Value::String(text) => {
            found(text, role);
            if let Some(inner) = json_inside(text, nested) {
                collect(&inner, role, nested + 1, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, role, nested, found)),
        Value::Object(members) => {
            for (name, value) in members {
                found(name, Role::Other);
                collect(value, role_in(role, name), nested, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `intranet.example/x` does, `intranet` is a word like any other.
fn looks_like_a_host(text: &str) -> bool {
    let text = text.trim();
    let host = text.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    !host.contains(char::is_whitespace) && host.contains(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}', ':'])
}

fn is_forbidden(value: &Value, role: Role, nested: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        // 2130706433 is 127.0.0.1.
        Value::Number(_) => role == Role::Address,
        Value::String(text) => {
            is_forbidden_text(text, role)
                || json_inside(text, nested).is_some_and(|inner| is_forbidden(&inner, role, nested + 1))
        }
        Value::Array(values) => values.iter().any(|value| is_forbidden(value, role, nested)),
        Value::Object(members) => members.iter().any(|(name, value)| {
            is_forbidden_text(name, Role::Other) || is_forbidden(value, role_in(role, name), nested)
        }),
    }
}

fn is_forbidden_text(text: &str, role: Role) -> bool {
    match role {
        Role::Address => !is_public(text),
        Role::HostName => !is_public(text) && !is_public(&format!("https://{}", text.trim())),
        Role::Other => leads_inside(text),
    }
}

/// Returns whether a text that need not be an address is one that leads inside.
fn leads_inside(text: &str) -> bool {
    if let Ok(url) = Url::parse(text)
        && (url.has_host() || url.scheme() == "file")
    {
        return !is_public(text);
    }
    let text = text.trim();
    if is_protocol_relative(text) {
        return !is_public(&format!("https:{}", text.replace('\\', "/")));
    }
    // `10.0.0.8/x` and `localhost:8080` are taken for addresses by many; `10` and `intranet` are words as well.
    let host = text.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let Ok(url) = Url::parse(&format!("http://{host}")) else { return false };
    let is_address = match url.host() {
        Some(Host::Ipv4(_)) => host.split(':').next().is_some_and(|host| host.parse::<Ipv4Addr>().is_ok()),
        Some(Host::Ipv6(_)) => true,
        Some(Host::Domain(name)) => is_inside_name(name),
        None => false,
    };
    is_address && !is_public(url.as_str())
}

fn is_protocol_relative(text: &str) -> bool {
    let mut letters = text.trim_start().chars();
    let is_slash = |letter: Option<char>| matches!(letter, Some('/' | '\\'));
    is_slash(letters.next()) && is_slash(letters.next())
}

/// `image_URL`, `base-uri` and `urls` name addresses.
fn role(name: &str) -> Role {
    let bare: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    let is_address = ["url", "urls", "uri", "uris", "href", "hrefs"].iter().any(|end| bare.ends_with(end));
    match bare.as_str() {
        _ if is_address => Role::Address,
        "host" | "hosts" | "hostname" | "domain" | "authority" | "proxy" => Role::HostName,
        _ => Role::Other,
    }
}

/// What is said of a value holds for what is inside it, unless a name there says more.
fn role_in(outer: Role, name: &str) -> Role {
    match role(name) {
        // Parts of an address that is given as an object: `{"url": {"path": "/x"}}`.
        Role::Other if outer == Role::Address => Role::Other,
        Role::Other => outer,
        inner => inner,
    }
}

fn json_inside(text: &str, nested: usize) -> Option<Value> {
    let begins = text.trim_start().starts_with(['{', '[']);
    (begins && nested < MAX_NESTED).then(|| serde_json::from_str(text).ok()).flatten()
}

/// A name of an argument is the caller's text, and ends up in logs.
fn shown(name: &str) -> String {
    let is_plain = name.len() <= MAX_SHOWN && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain { name.to_owned() } else { "arguments".to_owned() }
}

/// Returns whether an address can be seen to be outside. The parser is that of browsers: it reads `0x7f.1`, `2130706433` and
/// `①②⑦.0.0.1` as the addresses they are.
pub fn is_public(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    matches!(url.scheme(), "http" | "https")
        && !has_two_readings(text)
        && url.username().is_empty()
        && url.password().is_none()
        && match url.host() {
            None => false,
            Some(Host::Domain(name)) => is_public_name(name),
            Some(Host::Ipv4(address)) => is_public_address(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => is_public_address(IpAddr::V6(address)),
        }
}

/// Returns whether fetchers disagree about the host. For a browser a backslash ends it; for curl and others it belongs to the
/// user's name, and `http://example.com\@10.0.0.8/` leads to `10.0.0.8`.
fn has_two_readings(text: &str) -> bool {
    let (_, after_scheme) = text.split_once(':').unwrap_or_default();
    let authority = after_scheme.trim_start_matches(['/', '\\']).split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains('\\') && authority.contains('@'))
}

fn is_public_name(name: &str) -> bool {
    // A name without a dot is resolved with the search list of whoever resolves it.
    name.trim_end_matches('.').contains('.') && !is_inside_name(name)
}

fn is_inside_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    // Without a dot, all but the first are words like any other.
    name == INSIDE_NAMES[0] || INSIDE_NAMES.iter().any(|end| name.ends_with(&format!(".{end}")))
}

#[cfg(test)]
mod tests;
