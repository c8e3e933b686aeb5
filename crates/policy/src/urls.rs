//! Finds URLs in a fetcher's arguments that no agent may have fetched: those of internal hosts.
//!
//! Every string counts, at any depth and under any name, since a fetcher may read URLs from arguments that
//! its schema does not declare as such. Only the fetcher, an upstream, can check what a name resolves to and
//! where a redirect leads.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value};
use url::{Host, Url};

use super::{addresses::is_public_address, url_glob};

/// Prefixes of the names of tools that fetch URLs from their arguments.
const FETCHERS: [&str; 2] = ["web.", "api.call"];
/// How many levels of JSON encoded in strings are searched.
const MAX_NESTED_JSON: usize = 3;
/// Longest argument name that is reported in a denial.
const MAX_REPORTED_NAME_BYTES: usize = 64;
/// Domains that are resolved only inside a machine, a home, a company or a cluster.
const INTERNAL_DOMAINS: [&str; 11] = [
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

/// What the name of an argument implies about its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It must be a public URL.
    Url,
    /// It must be a public host name.
    HostName,
    Other,
}

pub(super) fn is_fetcher(tool: &str) -> bool {
    FETCHERS.iter().any(|prefix| tool.starts_with(prefix))
}

/// Returns whether the name of an argument announces a URL, as `url`, `URLs` or `image-uri` do.
pub(super) fn is_url_name(name: &str) -> bool {
    role(name) == Role::Url
}

/// Returns the name of the first argument with a URL that no agent may have fetched.
pub(super) fn find_forbidden(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    if !is_fetcher(tool) {
        return None;
    }
    let is_wrong = |(name, value): &(&String, &Value)| {
        is_forbidden_text(name, Role::Other) || is_forbidden(value, role(name), 0)
    };
    arguments.iter().find(is_wrong).map(|(name, _)| reported_name(name))
}

/// Returns every string, at any depth, that a fetcher would read as a URL; with `bare`, also strings that it
/// may read as a URL without a scheme.
pub(super) fn all_urls(arguments: &Map<String, Value>, bare: bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in arguments {
        collect(value, role(name), 0, &mut |text, role| {
            let is_url = role != Role::Other
                || url_glob::parse_url(text).is_some()
                || is_protocol_relative(text)
                || (bare && looks_like_a_host(text));
            if is_url {
                found.push(text.to_owned());
            }
        });
    }
    found
}

/// Calls `found` with every string in a value and the role that its name gives it.
fn collect(value: &Value, role: Role, nested: usize, found: &mut impl FnMut(&str, Role)) {
    match value {
        Value::String(text) => {
            found(text, role);
            if let Some(inner) = parse_nested_json(text, nested) {
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

/// Returns whether a text could be a host: `intranet.example/x` could, a single word like `intranet` could
/// not.
fn looks_like_a_host(text: &str) -> bool {
    let text = text.trim();
    let host = text.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    !host.contains(char::is_whitespace) && host.contains(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}', ':'])
}

fn is_forbidden(value: &Value, role: Role, nested: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        // 2130706433 is 127.0.0.1.
        Value::Number(_) => role == Role::Url,
        Value::String(text) => {
            is_forbidden_text(text, role)
                || parse_nested_json(text, nested).is_some_and(|inner| is_forbidden(&inner, role, nested + 1))
        }
        Value::Array(values) => values.iter().any(|value| is_forbidden(value, role, nested)),
        Value::Object(members) => members.iter().any(|(name, value)| {
            is_forbidden_text(name, Role::Other) || is_forbidden(value, role_in(role, name), nested)
        }),
    }
}

fn is_forbidden_text(text: &str, role: Role) -> bool {
    match role {
        Role::Url => !is_public(text),
        Role::HostName => !is_public(text) && !is_public(&format!("https://{}", text.trim())),
        Role::Other => is_internal_url(text),
    }
}

/// Returns whether a text, which need not be a URL, is the URL of an internal host.
fn is_internal_url(text: &str) -> bool {
    if let Ok(url) = Url::parse(text)
        && (url.has_host() || url.scheme() == "file")
    {
        return !is_public(text);
    }
    let text = text.trim();
    if is_protocol_relative(text) {
        return !is_public(&format!("https:{}", text.replace('\\', "/")));
    }
    // Many fetchers accept `10.0.0.8/x` and `localhost:8080` as URLs; `10` and `intranet` may be ordinary
    // words.
    let host = text.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let Ok(url) = Url::parse(&format!("http://{host}")) else { return false };
    let is_address = match url.host() {
        Some(Host::Ipv4(_)) => host.split(':').next().is_some_and(|host| host.parse::<Ipv4Addr>().is_ok()),
        Some(Host::Ipv6(_)) => true,
        Some(Host::Domain(name)) => is_internal_name(name),
        None => false,
    };
    is_address && !is_public(url.as_str())
}

fn is_protocol_relative(text: &str) -> bool {
    let mut letters = text.trim_start().chars();
    let is_slash = |letter: Option<char>| matches!(letter, Some('/' | '\\'));
    is_slash(letters.next()) && is_slash(letters.next())
}

/// Returns the role that a name gives to its value: `image_URL`, `base-uri` and `urls` announce URLs.
fn role(name: &str) -> Role {
    let bare: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect();
    let is_url = ["url", "urls", "uri", "uris", "href", "hrefs"].iter().any(|end| bare.ends_with(end));
    match bare.as_str() {
        _ if is_url => Role::Url,
        "host" | "hosts" | "hostname" | "domain" | "authority" | "proxy" => Role::HostName,
        _ => Role::Other,
    }
}

/// Returns the role of a member of an object: that of its own name, else that of the object.
fn role_in(outer: Role, name: &str) -> Role {
    match role(name) {
        // The members of a URL that is given as an object are parts of it: `{"url": {"path": "/x"}}`.
        Role::Other if outer == Role::Url => Role::Other,
        Role::Other => outer,
        inner => inner,
    }
}

fn parse_nested_json(text: &str, nested: usize) -> Option<Value> {
    let is_container = text.trim_start().starts_with(['{', '[']);
    (is_container && nested < MAX_NESTED_JSON).then(|| serde_json::from_str(text).ok()).flatten()
}

/// Returns the name if it may be logged. It is text of the caller, so a long or unprintable one is replaced.
fn reported_name(name: &str) -> String {
    let is_plain = name.len() <= MAX_REPORTED_NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain { name.to_owned() } else { "arguments".to_owned() }
}

/// Returns whether a URL is public as far as its text shows. It is parsed as browsers do: `0x7f.1`,
/// `2130706433` and `①②⑦.0.0.1` are recognised as the addresses they are.
pub fn is_public(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    matches!(url.scheme(), "http" | "https")
        && !has_ambiguous_host(text)
        && url.username().is_empty()
        && url.password().is_none()
        && match url.host() {
            None => false,
            Some(Host::Domain(name)) => is_public_name(name),
            Some(Host::Ipv4(address)) => is_public_address(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => is_public_address(IpAddr::V6(address)),
        }
}

/// Returns whether fetchers disagree about the host. For a browser a backslash ends the host; for curl and
/// others it belongs to the user name, and `http://example.com\@10.0.0.8/` is a URL of `10.0.0.8`.
fn has_ambiguous_host(text: &str) -> bool {
    let (_, after_scheme) = text.split_once(':').unwrap_or_default();
    let authority = after_scheme.trim_start_matches(['/', '\\']).split(['/', '?', '#']).next();
    authority.is_some_and(|authority| authority.contains('\\') && authority.contains('@'))
}

fn is_public_name(name: &str) -> bool {
    // A name without a dot is resolved with the search list of the fetcher's host.
    name.trim_end_matches('.').contains('.') && !is_internal_name(name)
}

fn is_internal_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    // Without a dot, all but `localhost` may be ordinary words.
    name == INTERNAL_DOMAINS[0] || INTERNAL_DOMAINS.iter().any(|end| name.ends_with(&format!(".{end}")))
}

#[cfg(test)]
mod tests;
