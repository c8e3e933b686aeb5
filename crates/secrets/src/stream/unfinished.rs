//! Finds a secret that may be incomplete at the end of a text.

use std::sync::LazyLock;

use regex::Regex;

use crate::redact::notation::{
    BLANK, BLOCK, CLOSED_NAME, LINE_END, MARKS, NAME_END, TAG, before_quote, equals, has_name, name, pair,
};

/// The characters of a secret after its fixed prefix.
const REST: &str = "[A-Za-z0-9_.=-]*";
/// Beginnings of secrets at the end of a text. The first group is what has to be held back.
static UNFINISHED: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(unfinished()));
/// Secrets that begin with a name.
static UNFINISHED_NAMED: LazyLock<Vec<Regex>> = LazyLock::new(|| compile(unfinished_named()));

/// Returns where the first secret begins that is not complete at the end of the text.
pub(super) fn find(text: &str) -> Option<usize> {
    let has_name = has_name(text);
    let named = UNFINISHED_NAMED.iter().filter(|_| has_name);
    UNFINISHED.iter().chain(named).filter_map(|rule| Some(rule.captures(text)?.get(1)?.start())).min()
}

/// The tests check that every pattern compiles.
fn compile(patterns: Vec<String>) -> Vec<Regex> {
    patterns.into_iter().filter_map(|pattern| Regex::new(&pattern).ok()).collect()
}

fn unfinished() -> Vec<String> {
    let beginnings = beginnings().join("|");
    vec![
        // The dashes that may begin a private key.
        r"(-{1,5}[A-Z ]*)\z".to_owned(),
        // What follows a scheme of HTTP.
        r"(?i-u:(?:bearer|basic|digest|token)(?:[ \t]|%20)+)([A-Za-z0-9._~+/=-]*)\z".to_owned(),
        r"((?i-u:bearer)[A-Za-z0-9._~+/=-]*)\z".to_owned(),
        r#"(?i-u:cookie)\\*["']?[ \t]*[:=]([ \t]*(?:\\*["'])?[^"'\r\n\\]*)\z"#.to_owned(),
        // Name and password before an `@`, with or without a scheme.
        r#"[A-Za-z][A-Za-z0-9+.-]*://([^ \t\r\n"'\\<>]*)\z"#.to_owned(),
        r#"((?-u:\b)[A-Za-z0-9_.~-]+:[^ \t\r\n:@/"'\\<>]*@?)\z"#.to_owned(),
        // A word that begins like a known shape.
        format!(r"((?-u:\b)(?:{beginnings}))\z"),
    ]
}

fn unfinished_named() -> Vec<String> {
    let (name, equals, before_quote) = (name(), equals(), before_quote());
    let named = format!("{name}{CLOSED_NAME}{equals}");
    let fence = format!("(?:[ \\t]*`{{0,3}}|[ \\t]*```[A-Za-z]*{LINE_END}?)");
    let rest_of_line = r#"[ \t>]*[`"']?[^ \t\r\n"'`]*[`"']?[ \t]*"#;
    vec![
        // The value of a named secret: without quotes, perhaps after a scheme or a tag, in quotes, …
        format!(r#"{named}((?:(?:(?i-u:bearer|basic|digest|token)|{TAG})[ \t]+)?[^ \t\r\n"'`&]*)\z"#),
        format!(r#"{named}({before_quote}\\*"(?:[^"\\]|\\.)*\\?)\z"#),
        format!(r#"{named}({before_quote}\\*'[^']*)\z"#),
        // … in three quotes, …
        format!(r#"{named}({before_quote}(?:(?:\\*"){{2}}|(?:\\*"){{3}}(?:[^"\\]|\\.)*\\?))\z"#),
        format!(r#"{named}({before_quote}(?:(?:\\*'){{2}}|(?:\\*'){{3}}[^']*))\z"#),
        // … in a span of code, …
        format!(r#"{named}({before_quote}`+[^`\r\n]*)\z"#),
        // … in a row of a table, …
        format!(r#"[|│][^|│\r\n]*{NAME_END}{CLOSED_NAME}[:：]?{MARKS}{BLANK}*[|│]({BLANK}*[^|│\r\n]*)\z"#),
        // … as the value of a pair, …
        format!(r#"{}(\\*(?:"[^"]*|'[^']*|[^ \t\r\n"',}}]*))\z"#, pair()),
        // … as an attribute, …
        format!(
            r#"<[^<>]*{name}(?:\\*["'])?[ \t][^<>]*(?-u:\b)(?i-u:value)[ \t]*=[ \t]*(\\*(?:"[^"<>]*|'[^'<>]*))\z"#
        ),
        // … as an element of XML, which has no name before its end, …
        format!(
            r#"<(?:[A-Za-z0-9_.-]+:)?{name}(?:[ \t](?:[^<>]*[^<>/])?)?>([ \t\r\n]*[^<>"\r\n]*[ \t\r\n]*<?\\?)\z"#
        ),
        // … as an argument, …
        format!(r#"--{name}(?:[ \t]+|\\*["'],[ \t]*)(\\*["']?[^ \t\r\n"'\\]*)\z"#),
        // … and on the line after its name, up to the end of that line.
        format!(
            r#"{NAME_END}[*_`]*{BLANK}*[:：]?[*_]*{BLANK}*(?:```[A-Za-z]*)?({LINE_END}{fence}{rest_of_line})\z"#
        ),
        format!(r#"{NAME_END}{CLOSED_NAME}{equals}{BLOCK}[ \t]*({LINE_END}[^\r\n]*)\z"#),
        format!(r"(?i-u:login)[ \t]+[^ \t\r\n]+(?:[ \t]|{LINE_END})+(?i-u:password)[ \t]+([^ \t\r\n]*)\z"),
    ]
}

/// Returns patterns for words that begin with the fixed characters of a shape, or with some of them.
fn beginnings() -> Vec<String> {
    const FIXED: [&str; 29] = [
        "SA",
        "SC",
        "SN",
        "SO",
        "SU",
        "SX",
        "eyJ",
        "cyn_",
        "sk-",
        "xai-",
        "gsk_",
        "hf_",
        "r8_",
        "AIza",
        "ya29.",
        "AKIA",
        "ASIA",
        "github_pat_",
        "glpat-",
        "npm_",
        "xapp-",
        "sk_live_",
        "sk_test_",
        "pk_live_",
        "pk_test_",
        "rk_live_",
        "rk_test_",
        "SG.",
        "AGE-SECRET-KEY-1",
    ];
    // `ghp_…`, `xoxb-…` and their like.
    let mut patterns = vec!["gh[a-z]?".to_owned(), "xox?[a-z]?".to_owned()];
    patterns.extend(["gh[a-z]_", "xox[a-z]-"].map(|fixed| format!("{fixed}{REST}")));
    patterns.push(r"hooks(?:\.[A-Za-z0-9_./-]*)?".to_owned());
    for fixed in FIXED {
        patterns.push(format!("{}{REST}", regex::escape(fixed)));
        patterns.extend((1..fixed.len()).map(|end| regex::escape(&fixed[..end])));
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(UNFINISHED.len(), unfinished().len());
        assert_eq!(UNFINISHED_NAMED.len(), unfinished_named().len());
    }
}
