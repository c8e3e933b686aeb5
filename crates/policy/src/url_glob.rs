//! Matches the globs of access rules against URLs as fetchers parse them.
//!
//! A fetcher treats `HTTPS:\\Intranet\x`, `https:/intranet/x` and `https://intranet/x` as the same URL, so a
//! rule must too. To deny, one matching form is enough and case is ignored. To allow, every form must match,
//! and a `*` in the host does not extend into the path.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use url::{Position, Url};

use super::pattern::glob;

/// Layers of percent-encoding to decode: a chain of servers may decode one layer each.
const MAX_DECODED_LAYERS: usize = 3;

/// Parses a text as a URL with a scheme and a host, as a fetcher would.
pub(super) fn parse_url(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(Url::has_host)
}

/// Removes what a URL parser ignores: tabs and line ends anywhere, spaces and control characters at the ends.
pub(super) fn without_ignored(text: &str) -> Cow<'_, str> {
    let text = text.trim_matches(|letter: char| letter <= ' ' || letter.is_whitespace());
    match text.contains(['\t', '\n', '\r']) {
        true => Cow::Owned(text.replace(['\t', '\n', '\r'], "")),
        false => Cow::Borrowed(text),
    }
}

/// Returns whether any form of a text matches a glob that denies. With `bare`, a text without a scheme is
/// treated as a URL too.
pub(super) fn denies(pattern: &str, text: &str, bare: bool) -> bool {
    if glob(pattern, text) {
        return true;
    }
    let mut urls: Vec<Url> = parse_url(text).into_iter().collect();
    if bare && urls.is_empty() {
        let text = without_ignored(text);
        let rest = text.trim_start_matches(['/', '\\']);
        urls.extend(["http", "https"].iter().filter_map(|scheme| parse_url(&format!("{scheme}://{rest}"))));
    }
    let patterns = patterns(pattern);
    let forms = urls.iter().flat_map(forms);
    forms.into_iter().any(|form| patterns.iter().any(|pattern| glob(pattern, &form)))
}

/// Returns whether all forms of a text match a glob that allows.
pub(super) fn allows(pattern: &str, text: &str) -> bool {
    let Some(url) = parse_url(text) else { return glob(pattern, text) };
    if !url.username().is_empty() || url.password().is_some() {
        return false;
    }
    let authority = &url[..Position::BeforePath];
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let (wanted_authority, wanted_path) = split(pattern);
    let Some(wanted_authority) = wanted_authority else {
        return glob(pattern, &format!("{authority}{path}"))
            && glob(pattern, &format!("{authority}{}", decode(path)));
    };
    let path_fits = |path: &str| match wanted_path {
        Some(wanted) => glob(wanted, path),
        None => path == "/" || wanted_authority.ends_with('*'),
    };
    let decoded = decode(path);
    // A `..` that appears only after decoding would be resolved by a server that decodes once more.
    let climbs = decoded.split(['/', '\\']).any(|part| part == "..");
    glob(&wanted_authority, authority) && path_fits(path) && path_fits(&decoded) && !climbs
}

/// Returns whether a pattern is about specific hosts, not only about a scheme.
pub(super) fn has_specific_host(pattern: &str) -> bool {
    let host = pattern.split_once("://").map_or(pattern, |(_, rest)| rest);
    host.split('/').next().is_some_and(|host| host.chars().any(char::is_alphanumeric))
}

/// Splits a pattern like `https://*.example.com/docs/*` into authority and path. The authority is lowercased,
/// as in a parsed URL.
fn split(pattern: &str) -> (Option<String>, Option<&str>) {
    let Some(at) = pattern.find("://") else { return (None, None) };
    let host = at + "://".len();
    match pattern[host..].find('/') {
        Some(slash) => {
            let (authority, path) = pattern.split_at(host + slash);
            (Some(authority.to_ascii_lowercase()), Some(path))
        }
        None => (Some(pattern.to_ascii_lowercase()), None),
    }
}

/// Returns the pattern in lowercase, as written and, if it is a URL, in normalised form.
fn patterns(pattern: &str) -> Vec<String> {
    let mut all = vec![pattern.to_lowercase()];
    if let Some(url) = parse_url(pattern) {
        let mut text = url.to_string();
        if !pattern.ends_with('/') && text.ends_with('/') {
            text.pop();
        }
        all.push(text.to_lowercase());
    }
    all
}

/// Returns the spellings of a URL that a rule may use, in lowercase: without credentials and trailing dot of
/// the host, with and without the port, encoded and decoded. The normalised URL itself is included.
fn forms(url: &Url) -> Vec<String> {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    let scheme = url.scheme();
    let mut authorities = vec![match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    }];
    if let (None, Some(port)) = (url.port(), url.port_or_known_default()) {
        authorities.push(format!("{scheme}://{host}:{port}"));
    }
    let path = &url[Position::BeforePath..];
    let mut paths = vec![Cow::Borrowed(path), decode(path)];
    if path == "/" {
        paths.push(Cow::Borrowed(""));
    }
    let forms =
        authorities.iter().flat_map(|authority| paths.iter().map(move |path| format!("{authority}{path}")));
    std::iter::once(url.to_string()).chain(forms).map(|form| form.to_lowercase()).collect()
}

/// Removes up to [`MAX_DECODED_LAYERS`] layers of percent-encoding.
fn decode(path: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(path);
    for _ in 0..MAX_DECODED_LAYERS {
        let next = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if next == text {
            break;
        }
        text = Cow::Owned(next);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_denied_url_is_denied() {
        let pattern = "https://intranet.*";
        for text in [
            "https://intranet.example/x",
            "HTTPS://intranet.example/x",
            "https://Intranet.example/x",
            " https://intranet.example/x",
            "https:/intranet.example/x",
            "https:intranet.example/x",
            "https:\\\\intranet.example\\x",
            "ht\ttps://intra\tnet.example/x",
            "https://intranet\u{ff0e}example/x",
            "https://intranet\u{3002}example/x",
            "https://user:word@intranet.example/x",
            "https://intranet.example:443/x",
            "https://%69ntranet.example/x",
            "https://INTRANET.EXAMPLE./x",
        ] {
            assert!(denies(pattern, text, false), "{text:?}");
        }
        for text in ["https://extranet.example/x", "https://example.com/?u=intranet", "intranet.example"] {
            assert!(!denies(pattern, text, false), "{text:?}");
        }
        assert!(denies(pattern, "intranet.example/x", true) && denies(pattern, "//intranet.example/x", true));
        assert!(denies("https://b\u{fc}cher.example/*", "https://xn--bcher-kva.example/x", false));
        assert!(denies("https://x.example:443/*", "https://x.example/a", false));
        assert!(denies("https://x.example/secret*", "https://x.example/%73ecret/1", false));
        assert!(denies("https://x.example/secret*", "https://x.example/a/../secret", false));
        assert!(denies("HTTPS://X.example", "https://x.example/", false));
        assert!(denies("*.md", "notes/readme.md", false) && !denies("*.md", "notes/readme.txt", false));
    }

    #[test]
    fn lookalikes_of_an_allowed_url_are_not_allowed() {
        let pattern = "https://*.example.com/docs/*";
        for (text, expected) in [
            ("https://www.example.com/docs/a", true),
            ("HTTPS://WWW.EXAMPLE.COM/docs/a", true),
            ("https://evil.com\\.example.com/docs/a", false),
            ("https://evil.com/.example.com/docs/a", false),
            ("https://evil.com?.example.com/docs/a", false),
            ("https://evil.com#.example.com/docs/a", false),
            ("https://www.example.com@evil.com/docs/a", false),
            ("https://u:p@www.example.com/docs/a", false),
            ("https://www.example.com/docs/../secret", false),
            ("https://www.example.com/docs/%2e%2e/secret", false),
            ("https://www.example.com/docs/%252e%252e/secret", false),
            ("https://www.example.com/other", false),
        ] {
            assert_eq!(allows(pattern, text), expected, "{text}");
        }
        assert!(allows("https://docs.example/*", "https://docs.example/a?b=c"));
        assert!(
            allows("https://docs.*", "https://docs.example/a")
                && !allows("https://docs.example", "https://docs.example/a")
        );
        assert!(allows("secret-*", "secret-2") && !allows("secret-*", "open"));
    }
}
