//! Finds whole words, without an index: what is left if a backend cannot be used.

use std::collections::BTreeSet;

use crate::{Hit, words::Tokenizer};

/// Returns the documents that have a word of the query, best first: by the share of the query's words that a
/// document has, then by id.
pub fn rank<'a>(
    tokenizer: &Tokenizer,
    query: &str,
    documents: impl IntoIterator<Item = (&'a str, &'a str)>,
    limit: usize,
) -> Vec<Hit<'a>> {
    let words_of = |text: &str| -> BTreeSet<String> {
        tokenizer.words(text).into_iter().filter(|word| !word.is_common).map(|word| word.text).collect()
    };
    let wanted = words_of(query);
    let score = |text: &str| words_of(text).intersection(&wanted).count() as f64 / wanted.len().max(1) as f64;
    let mut hits: Vec<Hit<'a>> = (documents.into_iter())
        .map(|(id, text)| Hit { id, score: score(text) })
        .filter(|hit| hit.score > 0.0)
        .collect();
    hits.sort_by(|left, right| right.score.total_cmp(&left.score).then_with(|| left.id.cmp(right.id)));
    hits.truncate(limit);
    hits
}
