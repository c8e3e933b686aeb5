//! What a pattern cannot decide: whether a word that stands where a secret may stand is one.

use regex::Captures;

/// Decides about what a rule found in a text.
pub(crate) type Guard = fn(&str, &Captures<'_>) -> bool;

/// Words that follow the name of an option in a sentence: "pass `--password` to the program".
const WORDS: [&str; 56] = [
    "a",
    "after",
    "an",
    "and",
    "are",
    "argument",
    "as",
    "at",
    "before",
    "but",
    "by",
    "can",
    "cannot",
    "does",
    "flag",
    "for",
    "from",
    "has",
    "if",
    "in",
    "instead",
    "is",
    "it",
    "may",
    "must",
    "needs",
    "not",
    "of",
    "on",
    "only",
    "option",
    "options",
    "or",
    "parameter",
    "reads",
    "sets",
    "should",
    "so",
    "takes",
    "than",
    "that",
    "the",
    "then",
    "to",
    "twice",
    "unless",
    "was",
    "when",
    "where",
    "which",
    "while",
    "will",
    "with",
    "without",
    "works",
    "yet",
];
/// Shorter ones are words, numbers of a list and the like.
const MIN_BYTES: usize = 4;

/// Everything that the pattern finds is a secret.
pub(super) fn none(_: &str, _: &Captures<'_>) -> bool {
    true
}

/// The value of an option, which may stand in a sentence.
pub(super) fn is_no_word_of_a_sentence(_: &str, found: &Captures<'_>) -> bool {
    let value = found[0].strip_prefix(&found[1]).unwrap_or_default();
    !is_word(value.trim_end_matches(['.', ',', ';', ':', '?', '!', ')']))
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

fn is_word(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    value.is_empty() || WORDS.binary_search(&value.as_str()).is_ok()
}

/// Digits among letters, or signs between them.
fn is_mixed(value: &str) -> bool {
    let inner = value.trim_matches(|letter: char| letter.is_ascii_punctuation());
    let has = |is: fn(char) -> bool| inner.chars().any(is);
    has(char::is_numeric)
        || has(|letter| letter.is_ascii_punctuation() && !matches!(letter, '-' | '\'' | '/'))
}

fn is_all_of_its_line(text: &str, found: &Captures<'_>) -> bool {
    let rest = found.get(0).map_or("", |whole| &text[whole.end()..]);
    let rest = rest.trim_start_matches(['`', '"', '\'', ' ', '\t']);
    // In JSON, the end of the text or of the line is an escape sequence or what follows a quote.
    rest.is_empty() || rest.starts_with(['\r', '\n', '\\', ',', '}', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted() {
        assert!(WORDS.is_sorted());
    }
}
