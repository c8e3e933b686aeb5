//! Words that may occur in the place of a secret.

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
/// Words that follow a name and a colon: types, and what is said about a secret.
const REMARKS: [&str; 38] = [
    "&str",
    "any",
    "ask",
    "bool",
    "boolean",
    "bytes",
    "empty",
    "expired",
    "false",
    "forgotten",
    "incorrect",
    "int",
    "integer",
    "invalid",
    "missing",
    "no",
    "none",
    "null",
    "number",
    "option<string>",
    "optional",
    "please",
    "required",
    "secretstring",
    "see",
    "set",
    "str",
    "string",
    "text",
    "too",
    "true",
    "undefined",
    "unset",
    "use",
    "varchar",
    "wrong",
    "you",
    "your",
];

/// Returns whether a value is a word of a sentence.
pub(super) fn is_word(value: &str) -> bool {
    value.is_empty() || has(&WORDS, value)
}

/// Returns whether a value is a word of a sentence, a type, or says something about a secret.
pub(super) fn is_remark(value: &str) -> bool {
    is_word(value) || has(&REMARKS, value)
}

fn has(words: &[&str], value: &str) -> bool {
    words.binary_search(&value.to_ascii_lowercase().as_str()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_sorted() {
        assert!(WORDS.is_sorted() && REMARKS.is_sorted());
    }
}
