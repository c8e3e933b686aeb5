//! Ranks documents for a query by their terms and by their vectors, and fuses both rankings.

use std::collections::BTreeMap;

use crate::embed::{Grams, SLOTS, Vector, likeness, rarity};
use crate::words::{Tokenizer, Word};

/// BM25: how slowly repetition stops to count, and how much length weakens.
const SATURATION: f64 = 1.5;
const LENGTH_SHARE: f64 = 0.75;
/// The share of the best score in its group that a document gets in addition to its own.
const GROUP_SHARE: f64 = 0.15;
/// How much of its n-grams a term shares with a word that it may be a misspelling of, and from which length.
const MIN_LIKENESS: f64 = 0.6;
const MIN_RESPELT_CHARS: usize = 5;
/// How much each ranking counts, how slowly that falls with the places, and how many places count.
const LEXICAL_WEIGHT: f64 = 2.0;
const VECTOR_WEIGHT: f64 = 1.0;
const PLACES_UNTIL_HALF: f64 = 60.0;
const MAX_FUSED_PLACES: usize = 1000;

/// A text to be found.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// Unique; decides between documents of the same score.
    pub id: String,
    /// Documents of one group, such as parts of a file, support each other. Empty if there is none.
    pub group: String,
    /// Texts, each with how many times it counts.
    pub fields: Vec<(String, u32)>,
}

/// A document that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit<'a> {
    pub id: &'a str,
    pub score: f64,
}

/// What is searched: for each term, the words that may stand for it, with their weights.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query(BTreeMap<String, BTreeMap<Word, f64>>);

/// Documents in memory. The order in which they were given makes no difference.
#[derive(Debug)]
pub struct Index {
    /// In the order of their ids.
    documents: Vec<Indexed>,
    /// For each term, the documents that have it and how often.
    occurrences: BTreeMap<String, Vec<(usize, u32)>>,
    slots: Vec<u64>,
    average_length: f64,
}

#[derive(Debug)]
struct Indexed {
    id: String,
    group: String,
    length: u32,
    vector: Vector,
}

impl Query {
    pub fn new(tokenizer: &Tokenizer, text: &str) -> Self {
        let mut query = Self::default();
        for word in tokenizer.words(text).into_iter().filter(|word| !word.is_common) {
            query.add(&word.term.clone(), word, 1.0);
        }
        query
    }

    /// Lets a word stand for a term of the query. Of all that stand for one, each document counts the best.
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

impl Index {
    pub fn new(tokenizer: &Tokenizer, documents: impl IntoIterator<Item = Document>) -> Self {
        let mut documents: Vec<Document> = documents.into_iter().collect();
        documents.sort_unstable();
        documents.dedup_by(|next, kept| next.id == kept.id);
        let (slots, average_length) = (vec![0; SLOTS], 1.0);
        let mut index = Self { documents: Vec::new(), occurrences: BTreeMap::new(), slots, average_length };
        documents.into_iter().for_each(|document| index.add(tokenizer, document));
        let length: u64 = index.documents.iter().map(|document| u64::from(document.length)).sum();
        index.average_length = length.max(1) as f64 / index.documents.len().max(1) as f64;
        index
    }

    fn add(&mut self, tokenizer: &Tokenizer, document: Document) {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut grams = Grams::default();
        for (text, times) in &document.fields {
            for word in tokenizer.words(text).into_iter().filter(|word| !word.is_common) {
                grams.count(&word.text, *times);
                *counts.entry(word.term).or_default() += times;
            }
        }
        for slot in grams.slots() {
            self.slots.get_mut(usize::from(slot)).into_iter().for_each(|frequency| *frequency += 1);
        }
        let length = counts.values().sum();
        for (term, count) in counts {
            self.occurrences.entry(term).or_default().push((self.documents.len(), count));
        }
        let Document { id, group, .. } = document;
        self.documents.push(Indexed { id, group, length, vector: grams.to_vector() });
    }

    /// Returns the best documents for a query, best first, with their fused scores.
    pub fn search(&self, query: &Query, limit: usize) -> Vec<Hit<'_>> {
        let lexical = self.ranked(&self.lexical_scores(query));
        let vector = self.ranked(&self.vector_scores(query));
        let fused = fuse(&[(&lexical, LEXICAL_WEIGHT), (&vector, VECTOR_WEIGHT)]).into_iter().take(limit);
        let named = |(number, score): (usize, f64)| Some(Hit { id: &self.documents.get(number)?.id, score });
        fused.filter_map(named).collect()
    }

    /// Returns whether a word of the query, or one that looks like it, occurs in a document.
    pub fn knows(&self, query: &Query) -> bool {
        let mut terms = query.0.values().flat_map(|words| self.spellings(words));
        terms.any(|(term, _)| self.occurrences.contains_key(term))
    }

    /// Returns the words of the query for which a document was found, as the query spells them. A document
    /// that is only similar to the query has none.
    pub fn matched_words<'q>(&self, query: &'q Query, id: &str) -> Vec<&'q str> {
        let Ok(number) = self.documents.binary_search_by(|document| document.id.as_str().cmp(id)) else {
            return Vec::new();
        };
        let has = |term: &str| {
            let occurrences = self.occurrences.get(term).map_or(&[][..], Vec::as_slice);
            occurrences.binary_search_by_key(&number, |(number, _)| *number).is_ok()
        };
        let matching =
            query.0.iter().filter(|(_, words)| self.spellings(words).iter().any(|(term, _)| has(term)));
        let spelt = |(term, words): (&'q String, &'q BTreeMap<Word, f64>)| {
            words.keys().find(|word| word.term == *term).map_or(term.as_str(), |word| word.text.as_str())
        };
        matching.map(spelt).collect()
    }

    fn lexical_scores(&self, query: &Query) -> Vec<f64> {
        let mut scores = vec![0.0; self.documents.len()];
        for words in query.0.values() {
            let mut best: BTreeMap<usize, f64> = BTreeMap::new();
            for (term, weight) in self.spellings(words) {
                let occurrences = self.occurrences.get(term).map_or(&[][..], Vec::as_slice);
                let weight = weight * rarity(self.documents.len() as u64, occurrences.len() as u64);
                for (number, count) in occurrences {
                    let known = best.entry(*number).or_default();
                    *known = known.max(weight * self.saturated(*number, *count));
                }
            }
            for (number, score) in best {
                scores.get_mut(number).into_iter().for_each(|sum| *sum += score);
            }
        }
        scores
    }

    /// Returns the terms of words. If none occurs, they may be misspelt: then those that look like them.
    fn spellings<'a>(&'a self, words: &'a BTreeMap<Word, f64>) -> Vec<(&'a str, f64)> {
        let terms = || words.iter().map(|(word, weight)| (word.term.as_str(), *weight));
        if terms().any(|(term, _)| self.occurrences.contains_key(term)) {
            return terms().collect();
        }
        let is_word =
            |term: &str| term.chars().count() >= MIN_RESPELT_CHARS && term.chars().all(char::is_alphabetic);
        let alike = |(term, weight): (&'a str, f64)| {
            let first = term.get(..term.ceil_char_boundary(1)).unwrap_or_default();
            let others = self.occurrences.range(first.to_owned()..).map(|(other, _)| other.as_str());
            let others = others.take_while(move |other| other.starts_with(first));
            let weighed = others.map(move |other| (other, likeness(term, other) * weight));
            weighed.filter(move |(_, like)| *like >= MIN_LIKENESS * weight)
        };
        terms().filter(|(term, _)| is_word(term)).flat_map(alike).collect()
    }

    fn saturated(&self, number: usize, count: u32) -> f64 {
        let length = self.documents.get(number).map_or(0.0, |document| f64::from(document.length));
        let relative = 1.0 - LENGTH_SHARE + LENGTH_SHARE * length / self.average_length;
        f64::from(count) * (SATURATION + 1.0) / (f64::from(count) + SATURATION * relative)
    }

    fn vector_scores(&self, query: &Query) -> Vec<f64> {
        let frequency = |slot| self.slots.get(usize::from(slot)).copied().unwrap_or_default();
        let wanted = query.grams().to_query_vector(self.documents.len() as u64, frequency);
        self.documents.iter().map(|document| document.vector.cosine(&wanted)).collect()
    }

    /// Returns the documents that have a score, best first.
    fn ranked(&self, scores: &[f64]) -> Vec<usize> {
        let mut best: BTreeMap<&str, f64> = BTreeMap::new();
        for (document, score) in self.documents.iter().zip(scores) {
            let known = best.entry(&document.group).or_default();
            *known = if document.group.is_empty() { 0.0 } else { known.max(*score) };
        }
        let of_group = |document: &Indexed| best.get(document.group.as_str()).copied().unwrap_or_default();
        let mut ranked: Vec<(f64, usize)> = (self.documents.iter().zip(scores).enumerate())
            .map(|(number, (document, score))| (score + GROUP_SHARE * of_group(document), number))
            .filter(|(score, _)| *score > 0.0)
            .collect();
        ranked.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        ranked.into_iter().map(|(_, number)| number).collect()
    }
}

/// Fuses rankings by the places in them. What is first in all has the score 1.
pub fn fuse<K: Ord + Clone>(rankings: &[(&[K], f64)]) -> Vec<(K, f64)> {
    let all: f64 = rankings.iter().map(|(_, weight)| weight).sum();
    let mut scores: BTreeMap<&K, f64> = BTreeMap::new();
    for (ranking, weight) in rankings {
        for (place, key) in ranking.iter().take(MAX_FUSED_PLACES).enumerate() {
            let share = (PLACES_UNTIL_HALF + 1.0) / (PLACES_UNTIL_HALF + 1.0 + place as f64);
            *scores.entry(key).or_default() += weight / all * share;
        }
    }
    let mut fused: Vec<(K, f64)> = scores.into_iter().map(|(key, score)| (key.clone(), score)).collect();
    fused.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    fused
}
