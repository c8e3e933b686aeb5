//! Replaces secrets in messages of people and models, and says of which kind each was.

use std::{borrow::Cow, sync::LazyLock};

use regex::{Captures, Regex};

use crate::{
    redact::{BEFORE, RULES, redact},
    shapes::SHAPES,
};

/// Replaces a secret whose kind is not known.
pub(crate) const UNKNOWN: &str = "[redacted:secret]";
/// What is left of a private key that is replaced first, since its body may look like something else.
const PRIVATE_KEY: &str = "[redacted:private_key]";

/// One rule for each shape, in their order.
static KINDS: LazyLock<Vec<(Regex, String)>> = LazyLock::new(|| {
    // The tests check that every pattern compiles.
    let compile = |(kind, shape)| {
        Some((Regex::new(&format!("{BEFORE}(?:{shape})")).ok()?, format!("${{1}}[redacted:{kind}]")))
    };
    SHAPES.into_iter().filter_map(compile).collect()
});

/// Replaces everything that looks like a secret with `[redacted:<kind>]`: the name of its shape, or `secret`
/// if only its place gives it away, as in `password=…`. Borrows the text if nothing matches. What was
/// replaced before stays as it is.
pub fn redact_by_kind(text: &str) -> Cow<'_, str> {
    // Most texts have none, and this is the cheaper look.
    if matches!(redact(text), Cow::Borrowed(_)) {
        return Cow::Borrowed(text);
    }
    let mut text = Cow::Borrowed(text);
    let mut rules = RULES.iter();
    // The first rule is that of private keys.
    if let Some(replaced) = rules.next().and_then(|rule| {
        rule.apply(&text, |_, out| {
            out.push_str(PRIVATE_KEY);
            true
        })
    }) {
        text = Cow::Owned(replaced);
    }
    for (shape, replacement) in KINDS.iter() {
        let changed = match shape.replace_all(&text, replacement) {
            Cow::Borrowed(_) => continue,
            Cow::Owned(changed) => changed,
        };
        text = Cow::Owned(changed);
    }
    for rule in rules {
        let replacement = rule.replacement.replace("[redacted]", UNKNOWN).replace("***", UNKNOWN);
        let replaced = rule.apply(&text, |found, out| {
            let is_new = !is_replaced(found);
            if is_new {
                found.expand(&replacement, out);
            } else {
                out.push_str(&found[0]);
            }
            is_new
        });
        if let Some(replaced) = replaced {
            text = Cow::Owned(replaced);
        }
    }
    text
}

/// Returns whether the value that a rule found is what an earlier rule left.
fn is_replaced(found: &Captures<'_>) -> bool {
    const SCHEMES: [&str; 4] = ["bearer", "basic", "digest", "token"];
    let whole = &found[0];
    // The rule for passwords before an `@` takes a marker for a name and its password.
    if whole.starts_with("redacted:") {
        return true;
    }
    let mut value = found.get(1).map_or(whole, |named| whole.strip_prefix(named.as_str()).unwrap_or(whole));
    // What closes an element.
    if let Some(after) = found.name("after") {
        value = value.strip_suffix(after.as_str()).unwrap_or(value);
    }
    let value = value.trim();
    let value = match value.split_once(char::is_whitespace) {
        Some((scheme, rest)) if SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) => rest.trim(),
        _ => value,
    };
    let marker = value.strip_prefix("[redacted:").and_then(|rest| rest.strip_suffix(']'));
    marker.is_some_and(|kind| kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::tests::{BODY, shapes};

    #[test]
    fn every_shape_compiles() {
        assert_eq!(KINDS.len(), SHAPES.len());
    }

    /// G11: a secret of any known shape is replaced, wherever it stands.
    #[test]
    fn secrets_of_many_shapes_are_replaced_once_and_for_all() {
        for (text, secret) in shapes() {
            for place in [
                text.clone(),
                format!("please use {text} and go on"),
                format!("first\n{text}\nlast"),
                format!("```\n{text}\n```"),
                serde_json::json!({ "content": text }).to_string(),
            ] {
                let once = redact_by_kind(&place);
                assert!(once.contains("[redacted:"), "{place}\nbecame\n{once}");
                assert!(!once.contains(&secret[..secret.len() / 2]), "{place}\nbecame\n{once}");
                assert!(!once.contains(&secret[secret.len() / 2..]), "{place}\nbecame\n{once}");
                assert_eq!(redact_by_kind(&once), once, "{place}");
            }
        }
    }

    #[test]
    fn kinds_are_named() {
        for (text, expected) in [
            (format!("cyn_{BODY}"), "[redacted:gateway_token]".to_owned()),
            (format!("use sk-{BODY} now"), "use [redacted:model_key] now".to_owned()),
            (format!("token=ghp_{BODY}"), "token=[redacted:github_token]".to_owned()),
            (
                format!("Authorization: Bearer sk-{BODY}"),
                "Authorization: Bearer [redacted:model_key]".to_owned(),
            ),
            ("password=hunter2 user=bob".to_owned(), "password=[redacted:secret] user=bob".to_owned()),
            (format!("{{\"token\":\"{BODY}\"}}"), "{\"token\":\"[redacted:secret]\"}".to_owned()),
            (
                format!("https://bob:{BODY}@host/path?a=1"),
                "https://[redacted:secret]@host/path?a=1".to_owned(),
            ),
            (
                format!("-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----\nand"),
                "[redacted:private_key]\nand".to_owned(),
            ),
            // A value that is more than the secret in it goes as a whole.
            (format!("password=\"abc sk-{BODY} def\""), "password=\"[redacted:secret]\"".to_owned()),
        ] {
            assert_eq!(redact_by_kind(&text), expected, "{text}");
        }
    }

    #[test]
    fn ordinary_texts_are_borrowed() {
        for text in ["Create a task: paint the fence.", "a bearer token is needed", ""] {
            assert!(matches!(redact_by_kind(text), Cow::Borrowed(_)), "{text}");
        }
    }
}
