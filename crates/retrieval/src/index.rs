//! Ranks documents for a query by their terms and by their vectors, and fuses both rankings.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, DefaultHasher},
    sync::Arc,
};

use crate::{
    columns::Columns,
    embed::{LetterPairs, SLOTS, rarity},
    features::Features,
    query::Query,
    words::{Tokenizer, Word},
};

/// BM25: how slowly repetition stops to count, and how much length weakens.
const SATURATION: f64 = 1.5;
const LENGTH_SHARE: f64 = 0.75;
/// The share of the best score in its group that a document gets in addition to its own.
const GROUP_SHARE: f64 = 0.15;
/// How much of its n-grams a term shares with a word that it may be a misspelling of, and from which length.
const MIN_LIKENESS: f64 = 0.6;
const MIN_RESPELT_CHARS: usize = 5;
/// Words of a query that may be misspelt. A text in another language has hundreds.
const MAX_RESPELT_WORDS: usize = 16;
/// How much each ranking counts, how slowly that falls with the places, and how many places count.
const LEXICAL_WEIGHT: f64 = 2.0;
const VECTOR_WEIGHT: f64 = 1.0;
const PLACES_UNTIL_HALF: f64 = 60.0;
const MAX_FUSED_PLACES: usize = 1000;
/// What a document, a term and an occurrence take at most besides their texts: entries of trees and of
/// vectors that are half empty, and what the allocator adds.
const DOCUMENT_BYTES: usize = 320;
const TERM_BYTES: usize = 160;
const OCCURRENCE_BYTES: usize = 2 * size_of::<Occurrence>();

/// A text to be found.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// Unique; decides between documents of the same score.
    pub id: String,
    /// Documents of one group, such as tools of one family, support each other. Empty if there is none.
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

/// Documents in memory. The order in which they came, and what came and went, makes no difference.
#[derive(Debug)]
pub struct Index {
    /// By number; numbers of removed documents are used again.
    documents: Vec<Option<Indexed>>,
    numbers: BTreeMap<Arc<str>, u32>,
    free: Vec<u32>,
    /// How many words each document has, by number.
    lengths: Vec<u32>,
    /// For each term, the documents that have it, by number. Nothing depends on the order of the terms.
    occurrences: HashMap<Box<str>, Vec<Occurrence>, BuildHasherDefault<DefaultHasher>>,
    /// How many documents are counted in each slot.
    slots: Vec<u32>,
    vectors: Columns,
    total_length: u64,
    /// Upper bound on the memory of documents, terms and occurrences.
    held_bytes: usize,
}

#[derive(Debug)]
struct Indexed {
    id: Arc<str>,
    group: Box<str>,
    features: Features,
}

#[derive(Clone, Copy, Debug)]
struct Occurrence {
    number: u32,
    count: u32,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            documents: Vec::new(),
            numbers: BTreeMap::new(),
            free: Vec::new(),
            lengths: Vec::new(),
            occurrences: HashMap::default(),
            slots: vec![0; SLOTS],
            vectors: Columns::default(),
            total_length: 0,
            held_bytes: 0,
        }
    }
}

impl Index {
    pub fn new(tokenizer: &Tokenizer, documents: impl IntoIterator<Item = Document>) -> Self {
        let mut documents: Vec<Document> = documents.into_iter().collect();
        // Of several with one id, the first in order is kept.
        documents.sort_unstable();
        documents.dedup_by(|next, kept| next.id == kept.id);
        let mut index = Self::default();
        for Document { id, group, fields } in documents {
            let fields = fields.iter().map(|(text, times)| (text.as_str(), *times));
            index.insert_into_group(&id, &group, Features::new(tokenizer, fields));
        }
        index
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Adds a document, or replaces the one with its id.
    pub fn insert(&mut self, id: &str, features: Features) {
        self.insert_into_group(id, "", features);
    }

    fn insert_into_group(&mut self, id: &str, group: &str, features: Features) {
        self.remove(id);
        let number = self.free.pop().unwrap_or_else(|| {
            self.documents.push(None);
            self.lengths.push(0);
            u32::try_from(self.documents.len() - 1).unwrap_or(u32::MAX)
        });
        let mut length = 0;
        for (term, count) in features.terms() {
            length += count;
            let occurrence = Occurrence { number, count };
            if let Some(known) = self.occurrences.get_mut(term) {
                let place = known.partition_point(|other| other.number < number);
                known.insert(place, occurrence);
            } else {
                self.held_bytes += TERM_BYTES + 2 * term.len();
                self.occurrences.insert(term.into(), vec![occurrence]);
            }
            self.held_bytes += OCCURRENCE_BYTES;
        }
        for slot in features.slots() {
            self.slots.get_mut(usize::from(slot)).into_iter().for_each(|frequency| *frequency += 1);
        }
        self.vectors.set(number as usize, features.components());
        let id: Arc<str> = id.into();
        self.numbers.insert(Arc::clone(&id), number);
        self.total_length += u64::from(length);
        self.lengths.get_mut(number as usize).into_iter().for_each(|place| *place = length);
        let document = Indexed { id, group: group.into(), features: features.without_vector() };
        self.held_bytes += document.bytes();
        if let Some(place) = self.documents.get_mut(number as usize) {
            *place = Some(document);
        }
    }

    /// Removes a document with all that was counted of it. Returns whether it was there.
    pub fn remove(&mut self, id: &str) -> bool {
        let Some(number) = self.numbers.remove(id) else { return false };
        let Some(document) = self.documents.get_mut(number as usize).and_then(Option::take) else {
            return false;
        };
        for (term, _) in document.features.terms() {
            let Some(known) = self.occurrences.get_mut(term) else { continue };
            if let Ok(place) = known.binary_search_by_key(&number, |other| other.number) {
                known.remove(place);
                self.held_bytes -= OCCURRENCE_BYTES;
            }
            if known.is_empty() {
                self.occurrences.remove(term);
                self.held_bytes -= TERM_BYTES + 2 * term.len();
            } else if known.capacity() > 2 * known.len() {
                known.shrink_to_fit();
            }
        }
        for slot in document.features.slots() {
            self.slots.get_mut(usize::from(slot)).into_iter().for_each(|frequency| *frequency -= 1);
        }
        self.vectors.clear(number as usize);
        let length = self.lengths.get_mut(number as usize).map(std::mem::take);
        self.total_length -= u64::from(length.unwrap_or_default());
        self.held_bytes -= document.bytes();
        self.free.push(number);
        true
    }

    /// Returns how many bytes the index takes at most.
    pub fn bytes(&self) -> usize {
        let places = self.documents.capacity() * size_of::<Option<Indexed>>()
            + (self.free.capacity() + self.lengths.capacity()) * size_of::<u32>();
        let slots = self.slots.capacity() * size_of::<u32>();
        size_of::<Self>() + self.held_bytes + places + slots + self.vectors.bytes()
    }

    /// Returns the best documents for a query, best first, with their fused scores.
    pub fn search(&self, query: &Query, limit: usize) -> Vec<Hit<'_>> {
        self.search_among(query, limit, |_| true)
    }

    /// Returns the best of some documents. How rare words are counts in all documents.
    pub fn search_among(&self, query: &Query, limit: usize, has: impl Fn(&str) -> bool) -> Vec<Hit<'_>> {
        let lexical = self.ranked(&self.lexical_scores(query), &has);
        let vector = self.ranked(&self.vector_scores(query), &has);
        let fused = fuse(&[(&lexical, LEXICAL_WEIGHT), (&vector, VECTOR_WEIGHT)]).into_iter().take(limit);
        fused.map(|(id, score)| Hit { id, score }).collect()
    }

    /// Returns whether a word of the query, or one that looks like it, occurs in a document.
    pub fn knows(&self, query: &Query) -> bool {
        let mut terms = self.spelled_terms(query).flat_map(|(_, spellings)| spellings);
        terms.any(|(term, _)| self.occurrences.contains_key(term))
    }

    /// Returns the words of the query for which a document was found, as the query spells them. A document
    /// that is only similar to the query has none.
    pub fn matched_words<'q>(&self, query: &'q Query, id: &str) -> Vec<&'q str> {
        let Some(number) = self.numbers.get(id) else { return Vec::new() };
        let has = |term: &str| {
            let occurrences = self.occurrences.get(term).map_or(&[][..], Vec::as_slice);
            occurrences.binary_search_by_key(number, |occurrence| occurrence.number).is_ok()
        };
        let spelled = query.0.iter().zip(self.spelled_terms(query));
        let matching = spelled.filter(|(_, (_, spellings))| spellings.iter().any(|(term, _)| has(term)));
        let spelt = |(term, words): (&'q String, &'q BTreeMap<Word, f64>)| {
            words.keys().find(|word| word.term == *term).map_or(term.as_str(), |word| word.text.as_str())
        };
        matching.map(|(asked, _)| spelt(asked)).collect()
    }

    fn lexical_scores(&self, query: &Query) -> Vec<f64> {
        let mut scores = vec![0.0; self.documents.len()];
        let average_length = self.total_length.max(1) as f64 / self.len().max(1) as f64;
        for (_, spellings) in self.spelled_terms(query) {
            let mut best: BTreeMap<u32, f64> = BTreeMap::new();
            for (term, weight) in &spellings {
                let occurrences = self.occurrences.get(*term).map_or(&[][..], Vec::as_slice);
                let weight = weight * rarity(self.len() as u64, occurrences.len() as u64);
                for occurrence in occurrences {
                    let score = weight * self.saturated(*occurrence, average_length);
                    if spellings.len() == 1 {
                        add(&mut scores, occurrence.number, score);
                    } else {
                        let known = best.entry(occurrence.number).or_default();
                        *known = known.max(score);
                    }
                }
            }
            best.into_iter().for_each(|(number, score)| add(&mut scores, number, score));
        }
        scores
    }

    /// Returns the terms of a query, each with those of the index that may stand for it.
    fn spelled_terms<'a>(
        &'a self,
        query: &'a Query,
    ) -> impl Iterator<Item = (&'a String, Vec<(&'a str, f64)>)> {
        let mut respellings = MAX_RESPELT_WORDS;
        query.0.iter().map(move |(term, words)| (term, self.spellings(words, &mut respellings)))
    }

    /// Returns the terms of words. If none occurs, they may be misspelt: then those that look like them, as
    /// long as `respellings` are left. Each of them compares a word with all terms.
    fn spellings<'a>(
        &'a self,
        words: &'a BTreeMap<Word, f64>,
        respellings: &mut usize,
    ) -> Vec<(&'a str, f64)> {
        let terms = || words.iter().map(|(word, weight)| (word.term.as_str(), *weight));
        if terms().any(|(term, _)| self.occurrences.contains_key(term)) {
            return terms().collect();
        }
        let is_word =
            |term: &str| term.chars().count() >= MIN_RESPELT_CHARS && term.chars().all(char::is_alphabetic);
        if !terms().any(|(term, _)| is_word(term)) {
            return Vec::new();
        }
        let Some(left) = respellings.checked_sub(1) else { return Vec::new() };
        *respellings = left;
        let alike = |(term, weight): (&'a str, f64)| {
            let first = term.get(..term.ceil_char_boundary(1)).unwrap_or_default();
            let others = self.occurrences.keys().map(|other| &**other);
            let others = others.filter(move |other| other.starts_with(first));
            let (pairs, mut of_other) = (LetterPairs::of(term), LetterPairs::default());
            let weighed = others.map(move |other| {
                of_other.read(other);
                (other, pairs.likeness(&of_other) * weight)
            });
            weighed.filter(move |(_, like)| *like >= MIN_LIKENESS * weight)
        };
        terms().filter(|(term, _)| is_word(term)).flat_map(alike).collect()
    }

    fn saturated(&self, occurrence: Occurrence, average_length: f64) -> f64 {
        let count = f64::from(occurrence.count);
        let length = self.lengths.get(occurrence.number as usize).copied().map_or(0.0, f64::from);
        let relative = 1.0 - LENGTH_SHARE + LENGTH_SHARE * length / average_length;
        count * (SATURATION + 1.0) / (count + SATURATION * relative)
    }

    fn vector_scores(&self, query: &Query) -> Vec<f64> {
        let frequency = |slot| self.slots.get(usize::from(slot)).copied().map_or(0, u64::from);
        let wanted = query.grams().to_query_vector(self.len() as u64, frequency);
        let mut scores = self.vectors.cosines(&wanted.nonzero_components());
        scores.truncate(self.documents.len());
        scores
    }

    /// Returns the documents that have a score, best first, as many as are fused.
    fn ranked(&self, scores: &[f64], has: impl Fn(&str) -> bool) -> Vec<&str> {
        let mut of_groups: BTreeMap<&str, f64> = BTreeMap::new();
        let documents = self.documents.iter().zip(scores);
        for (document, score) in documents.filter_map(|(document, score)| Some((document.as_ref()?, score))) {
            if !document.group.is_empty() {
                let known = of_groups.entry(&document.group).or_default();
                *known = known.max(*score);
            }
        }
        let of_group = |document: &Indexed| match of_groups.is_empty() {
            true => 0.0,
            false => of_groups.get(&*document.group).copied().unwrap_or_default(),
        };
        let scored = self.documents.iter().zip(scores).zip(0..);
        let mut ranked: Vec<(f64, u32)> = scored
            .filter_map(|((document, score), number)| {
                let document = document.as_ref()?;
                let score = score + GROUP_SHARE * of_group(document);
                (score > 0.0 && has(&document.id)).then_some((score, number))
            })
            .collect();
        let id = |number: u32| self.documents.get(number as usize)?.as_ref().map(|document| &*document.id);
        // By falling score, and those of the same score by id.
        let by_place = |left: &(f64, u32), right: &(f64, u32)| -> Ordering {
            right.0.total_cmp(&left.0).then_with(|| id(left.1).cmp(&id(right.1)))
        };
        if ranked.len() > MAX_FUSED_PLACES {
            ranked.select_nth_unstable_by(MAX_FUSED_PLACES, by_place);
            ranked.truncate(MAX_FUSED_PLACES);
        }
        ranked.sort_unstable_by(by_place);
        ranked.into_iter().filter_map(|(_, number)| id(number)).collect()
    }
}

impl Indexed {
    fn bytes(&self) -> usize {
        document_bytes(&self.id, &self.group, &self.features)
    }
}

impl Features {
    /// Returns how many bytes an index takes at most for a document of this id: as if no other document had
    /// one of its terms.
    pub fn index_bytes(&self, id: &str) -> usize {
        let terms = self.terms().map(|(term, _)| TERM_BYTES + OCCURRENCE_BYTES + 2 * term.len());
        let place = 2 * (size_of::<Option<Indexed>>() + size_of::<f64>() + size_of::<u32>());
        crate::embed::DIMENSIONS + place + document_bytes(id, "", self) + terms.sum::<usize>()
    }
}

fn document_bytes(id: &str, group: &str, features: &Features) -> usize {
    DOCUMENT_BYTES + id.len() + group.len() + features.counted_bytes()
}

fn add(scores: &mut [f64], number: u32, score: f64) {
    scores.get_mut(number as usize).into_iter().for_each(|sum| *sum += score);
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
