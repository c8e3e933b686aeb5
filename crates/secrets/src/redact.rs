//! Replaces text that looks like a secret. Our own code never logs secrets; this covers error texts from
//! other software, and mistakes.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

use crate::shapes::SHAPES;

/// What may precede a secret: a word boundary, an escape sequence of JSON or of a terminal, or a percent
/// escape.
pub(crate) const BEFORE: &str = r"((?-u:\b)|\\[nrt]|\x1b\[[0-9;]*m|%[0-9A-Fa-f]{2})";
pub(crate) const COLOURS: &str = r"(?:\x1b\[[0-9;]*m)*";
/// Names that end with one of these are names of secrets: `token`, `gateway.token`, `X-Api-Key`, but not
/// `tokens` or `token_file`.
pub(crate) const NAME: &str = r"(?:[A-Za-z0-9_.-]*(?i-u:passw(?:or)?d|passphrase|pwd|secret|token|jwt|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?key|credential|authorization)|(?-u:\b)pass)";

pub(crate) static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    // The tests check that every pattern compiles.
    rules()
        .into_iter()
        .filter_map(|(pattern, replacement)| Some((Regex::new(&pattern).ok()?, replacement)))
        .collect()
});

fn rules() -> [(String, &'static str); 14] {
    let shapes = SHAPES.map(|(_, shape)| shape).join("|");
    // `name=`, `name: `, `"name":"`, and the same with backslashes, where JSON is quoted in JSON.
    let equals = format!(r"{COLOURS}[ \t]*(?:=>|[:=])[ \t]*{COLOURS}(?:Some\()?");
    let begin = "-----BEGIN ?[A-Z0-9 ]*PRIVATE ?KEY[A-Z ]*-----";
    [
        // PEM keys, including truncated ones.
        (
            format!(r#"{begin}(?:[^"']*?-----END ?[A-Z0-9 ]*PRIVATE ?KEY[A-Z ]*-----|(?:\\+[nr]|[\sA-Za-z0-9+/=:,-])*)"#)
                .replace(r"\s", r" \t\r\n"),
            "[redacted]",
        ),
        // Passwords in URLs, with or without a scheme.
        (
            r#"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^ \t\r\n/?#"'\\<>]*|[^ \t\r\n:/@"'\\<>]*:[^ \t\r\n"'\\<>,]*)@"#
                .to_owned(),
            "${1}***@",
        ),
        (r#"(?-u:\b)[A-Za-z0-9_.~-]+:[^ \t\r\n:@/"'\\<>]+@([A-Za-z0-9\[])"#.to_owned(), "***@${1}"),
        (r"(?i-u:(bearer(?:[ \t]|%20)+))[A-Za-z0-9._~+/=-]{8,}".to_owned(), "${1}[redacted]"),
        // Bearer tokens whose space was removed.
        (r"(?i-u:(bearer))[A-Za-z0-9._~+/=-]{16,}".to_owned(), "${1}[redacted]"),
        (r"(?i-u:(basic[ \t]+))[A-Za-z0-9+/]{8,}={1,2}".to_owned(), "${1}[redacted]"),
        (format!("{BEFORE}(?:{shapes})"), "${1}[redacted]"),
        // Cookies are separated by spaces.
        (r#"((?i-u:cookie)\\*["']?[ \t]*[:=][ \t]*(?:\\*["'])?)[^"'\r\n\\]+"#.to_owned(), "${1}[redacted]"),
        // Values of named secrets: in quotes, …
        (format!(r#"({NAME}(?:\\*["'])?{equals}")(?:[^"\\]|\\.)*"#), "${1}[redacted]"),
        // … in quotes that are escaped once or twice (a quote with more backslashes than the first is part of
        // the value), …
        (
            format!(r#"({NAME}(?:\\*["'])?{equals}\\")(?:[^"\\]|\\[^"\\]|\\{{2,}}"?)*"#),
            "${1}[redacted]",
        ),
        (
            format!(r#"({NAME}(?:\\*["'])?{equals}\\\\+")(?:[^"\\]|\\{{1,3}}[^"\\]|\\{{4,}}"?)*"#),
            "${1}[redacted]",
        ),
        (
            format!(r#"({NAME}(?:\\*["'])?{equals}\\*')[^'"\\]*(?:\\+[^'"\\][^'"\\]*)*"#),
            "${1}[redacted]",
        ),
        // … as a JSON number, which is replaced with a string to keep the JSON valid, …
        (format!(r#"({NAME}"{equals})-?[0-9][0-9.eE+-]*"#), r#"${1}"[redacted]""#),
        // … and without quotes.
        (
            format!(
                r#"({NAME}(?:\\+["'])?{equals})(?:(?i-u:bearer|basic|digest|token)[ \t]+)?(?:[^ \t\r\n"'&\\]|\\+[^"'\\nrt \t])+"#
            ),
            "${1}[redacted]",
        ),
    ]
}

/// Replaces everything that looks like a secret with `[redacted]` or `***`. Borrows the text if nothing
/// matches.
pub fn redact(text: &str) -> Cow<'_, str> {
    RULES.iter().fold(Cow::Borrowed(text), |text, (rule, replacement)| {
        match rule.replace_all(&text, *replacement) {
            Cow::Borrowed(_) => text,
            Cow::Owned(changed) => Cow::Owned(changed),
        }
    })
}

#[cfg(test)]
pub(crate) mod tests;
