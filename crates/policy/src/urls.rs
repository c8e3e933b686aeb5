//! Finds URLs in a fetcher's arguments that no agent may have fetched: those of internal hosts.
//!
//! Every string counts, at any depth and under any name, since a fetcher may read URLs from arguments that
//! its schema does not declare as such. Only the fetcher, an upstream, can check what a name resolves to and
//! where a redirect leads.

mod bare_host;
mod role;

use std::net::IpAddr;

use serde_json::{Map, Value};
use url::{Host, Url};

use self::{
    bare_host::{BareHost, number_text},
    role::Role,
};
use super::{
    addresses::is_public_address,
    url_glob::{self, without_ignored},
};

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

pub(super) fn is_fetcher(tool: &str) -> bool {
    FETCHERS.iter().any(|prefix| tool.starts_with(prefix))
}

/// Returns whether the name of an argument announces a URL, as `url`, `URLs` or `image-uri` do.
pub(super) fn is_url_name(name: &str) -> bool {
    Role::of(name) == Role::Url
}

/// Returns the name of the first argument with a URL that no agent may have fetched.
pub(super) fn find_forbidden(tool: &str, arguments: &Map<String, Value>) -> Option<String> {
    if !is_fetcher(tool) {
        return None;
    }
    let is_wrong = |(name, value): &(&String, &Value)| {
        is_forbidden_text(name, Role::Other) || is_forbidden(value, Role::of(name), 0)
    };
    arguments.iter().find(is_wrong).map(|(name, _)| reported_name(name))
}

/// Returns every text, at any depth, that a fetcher would read as a URL; with `bare`, also texts that it may
/// read as a URL without a scheme. Names of arguments count as well.
pub(super) fn all_urls(arguments: &Map<String, Value>, bare: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |text: &str, role: Role| {
        let is_mail = text.contains('@') && !text.contains(['/', '\\', ':']);
        let may_be_host = bare || (role == Role::MaybeHost && !is_mail);
        let is_url = matches!(role, Role::Url | Role::HostName)
            || url_glob::parse_url(text).is_some()
            || is_protocol_relative(text)
            || (may_be_host && looks_like_a_host(text, role));
        if is_url {
            found.push(text.to_owned());
        }
    };
    for (name, value) in arguments {
        add(name, Role::Other);
        collect(value, Role::of(name), 0, &mut add);
    }
    found
}

/// Calls `found` with every text in a value and the role that its name gives it. A number is a text where
/// hosts or URLs are expected.
fn collect(value: &Value, role: Role, nested: usize, found: &mut impl FnMut(&str, Role)) {
    match value {
        Value::String(text) => {
            found(text, role);
            if let Some(inner) = parse_nested_json(text, nested) {
                collect(&inner, role, nested + 1, found);
            }
        }
        Value::Number(number) if role != Role::Other => found(&number_text(number), role),
        Value::Array(values) => values.iter().for_each(|value| collect(value, role, nested, found)),
        Value::Object(members) => {
            for (name, value) in members {
                found(name, Role::Other);
                collect(value, role.of_member(name, value), nested, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns whether a text could be a host: `intranet.example/x` and `0x7f000001` could, a single word like
/// `intranet` could not.
fn looks_like_a_host(text: &str, role: Role) -> bool {
    let text = without_ignored(text);
    // A path, if it is not relative to a protocol.
    if text.starts_with(['/', '\\']) {
        return false;
    }
    let host = text.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let has_separator = host.contains(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}', ':']);
    (has_separator && !host.contains(char::is_whitespace))
        || BareHost::read(&text).iter().any(|host| {
            host.is_address(role.expects_host()) || host.domain().is_some_and(|name| name.contains('.'))
        })
}

fn is_forbidden(value: &Value, role: Role, nested: usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        // 2130706433 is 127.0.0.1.
        Value::Number(number) => {
            role == Role::Url || (role.expects_host() && is_internal_url(&number_text(number), role))
        }
        Value::String(text) => {
            is_forbidden_text(text, role)
                || parse_nested_json(text, nested).is_some_and(|inner| is_forbidden(&inner, role, nested + 1))
        }
        Value::Array(values) => values.iter().any(|value| is_forbidden(value, role, nested)),
        Value::Object(members) => members.iter().any(|(name, value)| {
            is_forbidden_text(name, Role::Other) || is_forbidden(value, role.of_member(name, value), nested)
        }),
    }
}

fn is_forbidden_text(text: &str, role: Role) -> bool {
    match role {
        Role::Url => !is_public(text),
        Role::HostName => !is_public(text) && !is_public(&format!("https://{}", text.trim())),
        Role::MaybeHost | Role::Other => is_internal_url(text, role),
    }
}

/// Returns whether a text, which need not be a URL, is the URL of an internal host.
fn is_internal_url(text: &str, role: Role) -> bool {
    if let Ok(url) = Url::parse(text)
        && (url.has_host() || url.scheme() == "file")
    {
        return !is_public(text);
    }
    let text = without_ignored(text);
    if is_protocol_relative(&text) {
        return !is_public(&format!("https:{}", text.replace('\\', "/")));
    }
    // A path: it is resolved at the host of another URL.
    if text.starts_with(['/', '\\']) {
        return false;
    }
    // Many fetchers accept `10.0.0.8/x` and `localhost:8080` as URLs; `10` and `intranet` may be ordinary
    // words.
    BareHost::read(&text).iter().any(|host| {
        let is_host = host.is_address(role.expects_host()) || host.domain().is_some_and(is_internal_name);
        is_host && !is_public(host.url())
    })
}

fn is_protocol_relative(text: &str) -> bool {
    let text = without_ignored(text);
    let mut letters = text.chars();
    let is_slash = |letter: Option<char>| matches!(letter, Some('/' | '\\'));
    is_slash(letters.next()) && is_slash(letters.next())
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
    let text = without_ignored(text);
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
