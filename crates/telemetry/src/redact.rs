//! Takes out of a text what looks like a secret. Nothing of ours writes one down; this is for the words of others, which we pass
//! on in errors, and for whatever is missed.

use std::{borrow::Cow, sync::LazyLock};

use regex::Regex;

/// A text may stand in JSON, whose line breaks are letters, or on a terminal, in colours.
const BEFORE: &str = r"((?-u:\b)|\\[nrt]|\x1b\[[0-9;]*m|%[0-9A-Fa-f]{2})";
const COLOURS: &str = r"(?:\x1b\[[0-9;]*m)*";
/// What ends with one of these is the name of a secret: `token`, `gateway.token`, `X-Api-Key`, but not `tokens` or `token_file`.
const NAME: &str = r"(?:[A-Za-z0-9_.-]*(?i-u:passw(?:or)?d|passphrase|pwd|secret|token|jwt|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|client[_-]?key|credential|authorization)|(?-u:\b)pass)";

/// Secrets that are known by how they begin. Half of one is enough: texts are cut.
const SHAPES: [&str; 19] = [
    // Seeds of NATS keys.
    r"S[ACNOUX][A-Z2-7]{20,}",
    // JWTs, those of NATS among them.
    r"eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){0,2}",
    // Tokens of our own gateway.
    r"cyn_[A-Za-z0-9_-]{10,}",
    // Providers of models.
    r"sk-[A-Za-z0-9_-]{12,}",
    r"xai-[A-Za-z0-9_-]{10,}",
    r"gsk_[A-Za-z0-9]{10,}",
    r"hf_[A-Za-z0-9]{10,}",
    r"r8_[A-Za-z0-9]{10,}",
    r"AIza[A-Za-z0-9_-]{10,}",
    r"ya29\.[A-Za-z0-9_-]{16,}",
    // Clouds, forges and others.
    r"(?:AKIA|ASIA)[A-Z0-9]{8,}",
    r"gh[a-z]_[A-Za-z0-9]{10,}",
    r"github_pat_[A-Za-z0-9_]{16,}",
    r"glpat-[A-Za-z0-9_-]{12,}",
    r"npm_[A-Za-z0-9]{10,}",
    r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}",
    r"[spr]k_(?:live|test)_[A-Za-z0-9]{8,}",
    r"SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{20,}",
];

static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    // Each is known to be readable by the tests below.
    rules().into_iter().filter_map(|(pattern, instead)| Some((Regex::new(&pattern).ok()?, instead))).collect()
});

fn rules() -> [(String, &'static str); 14] {
    let shapes = SHAPES.join("|");
    // `name=`, `name: `, `"name":"`, and the same with backslashes, where JSON is quoted in JSON.
    let equals = format!(r"{COLOURS}[ \t]*(?:=>|[:=])[ \t]*{COLOURS}(?:Some\()?");
    let begin = "-----BEGIN ?[A-Z0-9 ]*PRIVATE ?KEY[A-Z ]*-----";
    [
        // Keys in PEM, also those that were cut off.
        (
            format!(r#"{begin}(?:[^"']*?-----END ?[A-Z0-9 ]*PRIVATE ?KEY[A-Z ]*-----|(?:\\+[nr]|[\sA-Za-z0-9+/=:,-])*)"#)
                .replace(r"\s", r" \t\r\n"),
            "[redacted]",
        ),
        // Passwords in addresses, also where the scheme is left out.
        (
            r#"([A-Za-z][A-Za-z0-9+.-]*://)(?:[^ \t\r\n/?#"'\\<>]*|[^ \t\r\n:/@"'\\<>]*:[^ \t\r\n"'\\<>,]*)@"#
                .to_owned(),
            "${1}***@",
        ),
        (r#"(?-u:\b)[A-Za-z0-9_.~-]+:[^ \t\r\n:@/"'\\<>]+@([A-Za-z0-9\[])"#.to_owned(), "***@${1}"),
        (r"(?i-u:(bearer(?:[ \t]|%20)+))[A-Za-z0-9._~+/=-]{8,}".to_owned(), "${1}[redacted]"),
        // Where spaces are taken out of a name.
        (r"(?i-u:(bearer))[A-Za-z0-9._~+/=-]{16,}".to_owned(), "${1}[redacted]"),
        (r"(?i-u:(basic[ \t]+))[A-Za-z0-9+/]{8,}={1,2}".to_owned(), "${1}[redacted]"),
        (format!("{BEFORE}(?:{shapes})"), "${1}[redacted]"),
        // Cookies have spaces between them.
        (r#"((?i-u:cookie)\\*["']?[ \t]*[:=][ \t]*(?:\\*["'])?)[^"'\r\n\\]+"#.to_owned(), "${1}[redacted]"),
        // What has a name that says so: in quotes, …
        (format!(r#"({NAME}(?:\\*["'])?{equals}")(?:[^"\\]|\\.)*"#), "${1}[redacted]"),
        // … that are quoted themselves, once or twice: a quote with more backslashes than the first is within, …
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
        // … as a number, in whose place JSON wants a value, …
        (format!(r#"({NAME}"{equals})-?[0-9][0-9.eE+-]*"#), r#"${1}"[redacted]""#),
        // … and bare.
        (
            format!(
                r#"({NAME}(?:\\+["'])?{equals})(?:(?i-u:bearer|basic|digest|token)[ \t]+)?(?:[^ \t\r\n"'&\\]|\\+[^"'\\nrt \t])+"#
            ),
            "${1}[redacted]",
        ),
    ]
}

/// The text without what looks like a secret in it.
pub fn redact(text: &str) -> Cow<'_, str> {
    RULES.iter().fold(Cow::Borrowed(text), |text, (rule, instead)| match rule.replace_all(&text, *instead) {
        Cow::Borrowed(_) => text,
        Cow::Owned(changed) => Cow::Owned(changed),
    })
}

#[cfg(test)]
mod tests;
