//! A parsed query.

use std::collections::BTreeMap;

use crate::{
    embed::Grams,
    words::{Tokenizer, Word},
};

/// A parsed query: for each term, the words that match it, with their weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query(pub(crate) BTreeMap<String, BTreeMap<Word, f64>>);

impl Query {
    pub fn new(tokenizer: &Tokenizer, text: &str) -> Self {
        let mut query = Self::default();
        for word in tokenizer.words(text).into_iter().filter(|word| !word.is_common) {
            query.add(&word.term.clone(), word, 1.0);
        }
        query
    }

    /// Adds a word that matches a term of the query. For each term a document counts only its best match.
    pub fn add(&mut self, term: &str, word: Word, weight: f64) {
        let known = self.0.entry(term.to_owned()).or_default().entry(word).or_default();
        *known = known.max(weight);
    }

    pub fn grams(&self) -> Grams {
        let mut grams = Grams::default();
        self.0.values().flatten().for_each(|(word, weight)| grams.weigh(&word.text, *weight));
        grams
    }
}
