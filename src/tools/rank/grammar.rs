//! Weakens words of a goal that do not carry the request, judged by their position in the sentence.

use std::collections::BTreeSet;

use super::goal::Token;
use super::words;

/// The weight of clauses that request nothing, in thousandths: they give background, or text to be written or
/// sent.
const BACKGROUND: u64 = 650;

const QUESTION_WORDS: &[&str] = &[
    "what", "which", "who", "whose", "how", "why", "when", "where", "is", "are", "was", "did", "do", "does",
    "has", "have", "please", "pls",
];
const REQUESTS: &[(&str, &str)] = &[
    ("can", "you"),
    ("could", "you"),
    ("would", "you"),
    ("will", "you"),
    ("can", "we"),
    ("can", "i"),
    ("could", "i"),
    ("i", "need"),
    ("i", "want"),
    ("we", "need"),
    ("we", "want"),
];

/// The weight of words after a preposition, in thousandths. They say where or for what, as `task` in
/// `the comments on the task`.
const COMPLEMENT: u64 = 800;
const PREPOSITIONS: &[&str] =
    &["for", "of", "in", "on", "from", "with", "onto", "into", "at", "about", "by", "under"];
const DETERMINERS: &[&str] =
    &["the", "a", "an", "this", "that", "my", "our", "your", "their", "his", "her", "its"];

/// Weakens the clauses that request nothing, if any clause requests something.
pub(crate) fn weaken_background(tokens: &mut [Token]) {
    let is_request = |clause: &&[Token]| {
        let asks = clause.first().is_some_and(|first| QUESTION_WORDS.contains(&first.word.as_str()));
        let is_please = |token: &Token| matches!(token.word.as_str(), "please" | "pls");
        let pairs = clause.iter().zip(clause.iter().skip(1));
        asks || clause.iter().any(is_please)
            || pairs
                .map(|(one, next)| (one.word.as_str(), next.word.as_str()))
                .any(|pair| REQUESTS.contains(&pair))
    };
    let clauses = || tokens.chunk_by(|one, next| one.clause == next.clause);
    let requests: BTreeSet<usize> =
        clauses().filter(is_request).filter_map(|clause| clause.first()).map(|token| token.clause).collect();
    if requests.is_empty() {
        return;
    }
    for token in tokens.iter_mut().filter(|token| !requests.contains(&token.clause)) {
        token.strength = token.strength * BACKGROUND / 1000;
    }
}

/// Weakens the words that follow a preposition.
pub(crate) fn weaken_complements(tokens: &mut [Token]) {
    let mut clause = 0;
    let mut is_complement = false;
    let mut was_to = false;
    for token in tokens {
        let word = token.word.as_str();
        let is_determiner = DETERMINERS.contains(&word);
        // Without a determiner after it, `to` may begin the request itself.
        let starts = PREPOSITIONS.contains(&word) || (was_to && is_determiner);
        let goes_on =
            is_complement && token.clause == clause && (is_determiner || !words::is_stop_word(word));
        is_complement = starts || goes_on;
        was_to = word == "to";
        clause = token.clause;
        if is_complement {
            token.strength = token.strength * COMPLEMENT / 1000;
        }
    }
}
