//! Patterns for tool names, and globs for argument values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A tool name, or a prefix of tool names followed by `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn matches(&self, name: &str) -> bool {
        matches(&self.0, name)
    }

    /// Returns whether this pattern matches every name that `inner` matches.
    pub fn covers(&self, inner: &str) -> bool {
        match (self.0.strip_suffix('*'), inner.strip_suffix('*')) {
            (Some(outer), Some(inner)) => inner.starts_with(outer),
            (_, None) => self.matches(inner),
            (None, Some(_)) => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a name matches a pattern: `db.*` matches every name below `db.`, but not `db.` itself.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(prefix) => name.len() > prefix.len() && name.starts_with(prefix),
        None => pattern == name,
    }
}

/// Returns whether a text matches a glob, in which each `*` stands for any characters, also none.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    match last {
        Some(end) => rest.ends_with(end),
        None => rest.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_star_matches_every_longer_name() {
        for (pattern, name, expected) in [
            ("db.*", "db.task.get", true),
            ("db.*", "db.", false),
            ("db.*", "dbx.task", false),
            ("api.call", "api.call", true),
            ("api.call", "api.caller", false),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_star_in_a_glob_matches_any_characters() {
        for (pattern, text, expected) in [
            ("https://docs.example.com/*", "https://docs.example.com/a/b", true),
            ("https://docs.example.com/*", "https://docs.example.com.evil/", false),
            ("*.md", "notes/readme.md", true),
            ("*.md", "notes/readme.mdx", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("aa*aa", "aaa", false),
            ("exact", "exact", true),
            ("exact", "exactly", false),
            ("*", "", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
