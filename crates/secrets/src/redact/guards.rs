//! Checks that a pattern cannot express: whether a word in the place of a secret is one.

use regex::Captures;

use super::words::{is_remark, is_word};

/// Decides about what a rule found in a text.
pub(crate) type Guard = fn(&str, &Captures<'_>) -> bool;

/// Minimum length: shorter values are words, list numbers and the like.
const MIN_BYTES: usize = 4;

/// Everything that the pattern finds is a secret.
pub(super) fn none(_: &str, _: &Captures<'_>) -> bool {
    true
}

/// The value of an option, which may stand in a sentence.
pub(super) fn is_no_word_of_a_sentence(_: &str, found: &Captures<'_>) -> bool {
    !is_word(without_stops(value_of(found)))
}

/// A value after its name and a colon or an equals sign: no sign of the notation, and after a colon no word
/// that says something about it: "password: required". What is compared looks like a password, unless it is
/// in quotes: "if token == expected".
pub(super) fn is_value(text: &str, found: &Captures<'_>) -> bool {
    let (before, value) = (&found[1], value_of(found));
    if !is_no_punctuation(text, found) || is_before_a_quote(text, found) {
        return false;
    }
    if before.contains("==") || before.contains("!=") {
        return before.ends_with('`') || is_mixed(value);
    }
    before.contains(['=', '＝']) || !is_remark(without_stops(value))
}

/// A value in the cell of a table after that of its name: it looks like a password, and not like a type or
/// the name of a column.
pub(super) fn is_value_of_a_cell(text: &str, found: &Captures<'_>) -> bool {
    const NAME_SIGNS: &str = "-'/_.:,()<>";
    let value = value_of(found);
    let has = |is: fn(char) -> bool| value.chars().any(is);
    let has_sign = || has(|letter| letter.is_ascii_punctuation() && !NAME_SIGNS.contains(letter));
    value.len() >= MIN_BYTES
        && has(char::is_alphabetic)
        && (has(char::is_numeric) || has_sign())
        && is_followed_by_a_bar(text, found)
}

/// Tells a table from a pipe of a shell, which has no third bar.
fn is_followed_by_a_bar(text: &str, found: &Captures<'_>) -> bool {
    const MAX_CELL_CHARS: usize = 256;
    let rest = rest_of(text, found);
    let mut line = rest.chars().take(MAX_CELL_CHARS).take_while(|letter| !matches!(letter, '\r' | '\n'));
    rest.is_empty() || line.any(|letter| matches!(letter, '|' | '│'))
}

/// A value that looks like a password.
pub(super) fn is_mixed_value(_: &str, found: &Captures<'_>) -> bool {
    is_mixed(value_of(found))
}

/// A value that is more than the signs of a notation, such as `|` before a block of YAML.
pub(super) fn is_no_punctuation(_: &str, found: &Captures<'_>) -> bool {
    let value = value_of(found).trim();
    let value = match value.split_once([' ', '\t']) {
        Some((tag, block)) if tag.starts_with('!') => block.trim_start(),
        _ => value,
    };
    let is_block =
        value.starts_with(['|', '>']) && value[1..].chars().all(|sign| matches!(sign, '0'..='9' | '+' | '-'));
    !is_block && (value.len() >= MIN_BYTES || value.chars().any(char::is_alphanumeric))
}

fn value_of<'t>(found: &'t Captures<'_>) -> &'t str {
    found[0].strip_prefix(&found[1]).unwrap_or_default()
}

fn without_stops(value: &str) -> &str {
    value.trim_end_matches(['.', ',', ';', ':', '?', '!', ')', '*', '_', '`'])
}

fn rest_of<'t>(text: &'t str, found: &Captures<'_>) -> &'t str {
    found.get(0).map_or("", |whole| &text[whole.end()..])
}

/// Text before a value in quotes: `b"…"`, `String::from("…")`, `!vault "…"`.
fn is_before_a_quote(text: &str, found: &Captures<'_>) -> bool {
    let (value, mut rest) = (value_of(found), rest_of(text, found));
    let is_prefix = value.len() <= 2 && value.chars().all(|letter| "bBrRfFuUL@$".contains(letter));
    let is_tag = value.starts_with('!');
    if is_tag {
        rest = rest.trim_start_matches([' ', '\t']);
    }
    (is_prefix || is_tag || value.ends_with('('))
        && rest.trim_start_matches('\\').starts_with(['"', '\'', '`'])
}

/// A value below its name and a colon: it is all of its line, or looks like a password.
pub(super) fn is_value_of_a_line(text: &str, found: &Captures<'_>) -> bool {
    is_possible(&found[2]) && (is_all_of_its_line(text, found) || is_mixed(&found[2]))
}

/// A value below a line that is a name: it is all of its line, and looks like a password.
pub(super) fn is_password_of_a_line(text: &str, found: &Captures<'_>) -> bool {
    is_possible(&found[2]) && is_all_of_its_line(text, found) && is_mixed(&found[2])
}

/// A key of YAML, a bracket and an ordinary word are no secrets.
fn is_possible(value: &str) -> bool {
    value.len() >= MIN_BYTES
        && !value.ends_with([':', '：'])
        && value.starts_with(|first: char| !matches!(first, '{' | '[' | '(' | '<'))
        && !is_word(value)
}

/// Digits among letters, or signs between them.
fn is_mixed(value: &str) -> bool {
    let inner = value.trim_matches(|letter: char| letter.is_ascii_punctuation());
    let has = |is: fn(char) -> bool| inner.chars().any(is);
    has(char::is_numeric)
        || has(|letter| letter.is_ascii_punctuation() && !matches!(letter, '-' | '\'' | '/'))
}

fn is_all_of_its_line(text: &str, found: &Captures<'_>) -> bool {
    let rest = rest_of(text, found).trim_start_matches(['`', '"', '\'', ' ', '\t']);
    // In JSON, the end of the text or of the line is an escape sequence or what follows a quote.
    rest.is_empty() || rest.starts_with(['\r', '\n', '\\', ',', '}', ']'])
}
