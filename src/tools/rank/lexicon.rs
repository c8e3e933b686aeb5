//! Synonyms, hints and phrases of general English, independent of the catalogue.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::phrases::PHRASES;
use super::synonyms::{GROUPS, HINTS};
use super::words;

/// How strongly related words match, in thousandths of an exact match.
const SAME_MEANING: u64 = 550;
const HINT: u64 = 350;

/// The tables of synonyms, indexed for lookup by stem.
pub(crate) struct Lexicon {
    related: BTreeMap<String, BTreeMap<String, u64>>,
    phrases: BTreeMap<String, Vec<Phrase>>,
}

/// A phrase without its first word.
pub(crate) struct Phrase {
    pub(crate) rest: Vec<String>,
    pub(crate) meaning: Vec<String>,
}

impl Lexicon {
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<Lexicon> = LazyLock::new(Lexicon::build);
        &SHARED
    }

    fn build() -> Self {
        let mut lexicon = Self { related: BTreeMap::new(), phrases: BTreeMap::new() };
        for group in GROUPS {
            lexicon.relate(group, group, SAME_MEANING);
        }
        for (from, to) in HINTS {
            lexicon.relate(from, to, HINT);
        }
        for (expression, meaning) in PHRASES {
            lexicon.add_phrase(expression, meaning);
        }
        lexicon
    }

    fn relate(&mut self, from: &str, to: &str, strength: u64) {
        let others: Vec<String> = to.split_whitespace().map(words::stem).collect();
        for word in from.split_whitespace().map(words::stem) {
            let related = self.related.entry(word.clone()).or_default();
            for other in others.iter().filter(|other| **other != word) {
                let known = related.entry(other.clone()).or_default();
                *known = strength.max(*known);
            }
        }
    }

    fn add_phrase(&mut self, expression: &str, meaning: &str) {
        let mut parts = expression.split_whitespace().map(words::stem);
        if let Some(first) = parts.next() {
            let meaning = meaning.split_whitespace().map(words::stem).collect();
            let phrase = Phrase { rest: parts.collect(), meaning };
            self.phrases.entry(first).or_default().push(phrase);
        }
    }

    pub(crate) fn knows(&self, stem: &str) -> bool {
        self.related.contains_key(stem)
    }

    /// Returns each stem with its related stems and the strength of each relation, in thousandths.
    pub(crate) fn relations(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, u64>)> {
        self.related.iter()
    }

    pub(crate) fn phrases_from(&self, first: &str) -> &[Phrase] {
        self.phrases.get(first).map_or(&[], Vec::as_slice)
    }
}
