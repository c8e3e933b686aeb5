//! Replaces text that looks like a secret. Our own code never logs secrets; this covers error texts from
//! other software, and mistakes.

mod guards;
pub(crate) mod notation;
mod rules;
mod words;

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

use crate::shapes;
pub(crate) use rules::{BEFORE, RULES};

/// Replaces everything that looks like a secret with `[redacted]` or `***`. Borrows the text if nothing
/// matches.
pub fn redact(text: &str) -> Cow<'_, str> {
    rules::replace_all(text)
}

/// Returns the kind of a secret in a name that a client or an operator chose, such as that of a thread.
/// Stricter than [`redact`], since names may look like secrets: `sk-learn-contrib`, `oidc:bob@example.com`.
pub fn find_in_name(name: &str) -> Option<&'static str> {
    let has_value = || RULES.iter().any(|rule| rule.holds_in_names && rule.finds(name));
    shapes::find(name).or_else(|| has_value().then_some("password"))
}

/// Returns whether the value of a member with this name is a secret: `password`, `X-Api-Key`, `Cookie`.
pub fn is_name(name: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(&format!(r"(?:{}|(?i-u:cookie))[ \t]*\z", notation::NAME_END)).ok());
    NAME.as_ref().is_some_and(|rule| rule.is_match(name))
}

#[cfg(test)]
pub(crate) mod tests;
