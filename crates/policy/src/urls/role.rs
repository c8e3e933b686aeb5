//! What the names of arguments imply about their values.

use serde_json::Value;

use super::bare_host::is_small;

/// Last words of names whose values may be hosts.
const HOST_WORDS: [&str; 20] = [
    "addr",
    "address",
    "addresses",
    "authority",
    "domain",
    "endpoint",
    "endpoints",
    "host",
    "hostname",
    "hostnames",
    "hosts",
    "ip",
    "ipaddress",
    "ips",
    "ipv4",
    "ipv6",
    "proxies",
    "proxy",
    "server",
    "servers",
];

/// What the name of an argument implies about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It must be a public URL.
    Url,
    /// It must be a public host name.
    HostName,
    /// It may be a host: a number is an address.
    MaybeHost,
    Other,
}

impl Role {
    /// Returns the role that a name gives to its value: `image_URL`, `base-uri` and `urls` announce URLs.
    pub(super) fn of(name: &str) -> Self {
        let bare: String = name
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        let is_url = ["url", "urls", "uri", "uris", "href", "hrefs"].iter().any(|end| bare.ends_with(end));
        match bare.as_str() {
            _ if is_url => Self::Url,
            "host" | "hosts" | "hostname" | "hostnames" | "domain" | "authority" | "proxy" => Self::HostName,
            _ if HOST_WORDS.contains(&&*last_word(name)) => Self::MaybeHost,
            _ => Self::Other,
        }
    }

    /// Returns the role of a member of an object: that of its own name, else that of the object.
    pub(super) fn of_member(self, name: &str, value: &Value) -> Self {
        match Self::of(name) {
            // The members of a URL that is given as an object are parts of it: `{"url": {"path": "/x"}}`. So
            // are those of an address, which need not be one of a host.
            Self::Other if matches!(self, Self::Url | Self::MaybeHost) => Self::Other,
            // The port of a host, or a time limit.
            Self::Other if matches!(&*last_word(name), "port" | "ports") => Self::Other,
            Self::Other if matches!(value, Value::Number(number) if is_small(number)) => Self::Other,
            Self::Other => self,
            own => own,
        }
    }

    pub(super) fn expects_host(self) -> bool {
        matches!(self, Self::HostName | Self::MaybeHost)
    }
}

/// Returns the last word of a name, in lowercase: `address` of `remoteAddress` and `remote_address`.
fn last_word(name: &str) -> String {
    let mut word = String::new();
    let mut before = None;
    for letter in name.chars().filter(char::is_ascii) {
        let begins = letter.is_ascii_uppercase()
            && before.is_some_and(|before: char| before.is_ascii_lowercase() || before.is_ascii_digit());
        let follows_break = before.is_some_and(|before: char| !before.is_ascii_alphanumeric());
        if letter.is_ascii_alphanumeric() {
            if begins || follows_break {
                word.clear();
            }
            word.push(letter.to_ascii_lowercase());
        }
        before = Some(letter);
    }
    word
}
