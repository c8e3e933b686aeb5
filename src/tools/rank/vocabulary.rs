//! The terms of a catalogue, and which of them a word of a goal may mean.

use std::collections::BTreeMap;

use super::goal::GoalWord;
use super::lexicon::Lexicon;
use super::words;

/// The weight of a match by how it was found, in thousandths.
const EXACT: u64 = 1000;
const SAME_ROOT: u64 = 750;
const MISSPELT: u64 = 600;

/// Shorter words are not corrected, since they are too easily confused.
const MIN_MISSPELT_CHARS: usize = 5;
const MIN_LIKENESS: u64 = 600;
const MAX_LENGTH_DIFFERENCE: usize = 2;
const MAX_MISSPELT_WORDS: usize = 32;

pub(crate) type TermNumber = usize;

#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    numbers: BTreeMap<String, TermNumber>,
    by_root: BTreeMap<String, Vec<TermNumber>>,
    /// For each stem of the lexicon, the terms related to it.
    related: BTreeMap<String, Vec<(TermNumber, u64)>>,
    spellings: BTreeMap<char, Vec<Spelling>>,
}

#[derive(Debug)]
struct Spelling {
    stem: String,
    pairs: Vec<(char, char)>,
}

/// A term that a word of the goal may mean, with its strength in thousandths.
pub(crate) struct Meaning {
    pub(crate) term: TermNumber,
    pub(crate) strength: u64,
    pub(crate) is_literal: bool,
}

impl Vocabulary {
    /// Numbers the stems, which must be sorted so that the numbers do not depend on the order of the
    /// catalogue.
    pub(crate) fn of(stems: impl IntoIterator<Item = String>, lexicon: &Lexicon) -> Self {
        let mut vocabulary = Self::default();
        for (number, stem) in stems.into_iter().enumerate() {
            for root in words::roots(&stem) {
                vocabulary.by_root.entry(root).or_default().push(number);
            }
            vocabulary.by_root.entry(stem.clone()).or_default().push(number);
            vocabulary.learn_spelling(&stem);
            vocabulary.numbers.insert(stem, number);
        }
        vocabulary.learn_relations(lexicon);
        vocabulary
    }

    pub(crate) fn number(&self, stem: &str) -> Option<TermNumber> {
        self.numbers.get(stem).copied()
    }

    fn learn_spelling(&mut self, stem: &str) {
        if let Some(first) = stem.chars().next().filter(|_| is_worth_correcting(stem)) {
            let spelling = Spelling { stem: stem.to_owned(), pairs: letter_pairs(stem) };
            self.spellings.entry(first).or_default().push(spelling);
        }
    }

    fn learn_relations(&mut self, lexicon: &Lexicon) {
        let mut families: BTreeMap<&str, Vec<(TermNumber, u64)>> = BTreeMap::new();
        for (stem, others) in lexicon.relations() {
            let mut terms: BTreeMap<TermNumber, u64> = BTreeMap::new();
            for (other, nearness) in others {
                for (term, strength) in families.entry(other).or_insert_with(|| self.family(other)) {
                    let known = terms.entry(*term).or_default();
                    *known = (*strength * nearness / 1000).max(*known);
                }
            }
            self.related.insert(stem.clone(), terms.into_iter().collect());
            if !self.numbers.contains_key(stem) {
                self.learn_spelling(stem);
            }
        }
    }

    /// Returns the terms that are inflections or derivations of a stem, with the strength of each.
    fn family(&self, stem: &str) -> Vec<(TermNumber, u64)> {
        let mut roots = words::roots(stem);
        roots.push(stem.to_owned());
        let by_root = roots.iter().filter_map(|root| self.by_root.get(root)).flatten();
        let derived = by_root.map(|term| (*term, SAME_ROOT));
        derived.chain(self.number(stem).map(|term| (term, EXACT))).collect()
    }

    /// Returns the terms that each word of the goal may mean.
    pub(crate) fn meanings(&self, goal: &[GoalWord]) -> Vec<Vec<Meaning>> {
        let mut corrections_left = MAX_MISSPELT_WORDS;
        let mut meanings = Vec::with_capacity(goal.len());
        for word in goal {
            let mut terms = Terms::default();
            self.expand(word, word.strength, &mut terms);
            if terms.0.is_empty() && !self.related.contains_key(&word.stem) && corrections_left > 0 {
                corrections_left -= 1;
                self.expand_corrected(word, &mut terms);
            }
            meanings.push(terms.into_meanings());
        }
        meanings
    }

    fn expand(&self, word: &GoalWord, strength: u64, terms: &mut Terms) {
        if !word.only_hints {
            for (term, nearness) in self.family(&word.stem) {
                terms.add(term, strength * nearness / 1000, true);
            }
        }
        let own = self.related.get(&word.stem).map(|related| (related, strength));
        let of_root = || {
            let related = words::roots(&word.stem).iter().find_map(|root| self.related.get(root));
            related.map(|related| (related, strength * SAME_ROOT / 1000))
        };
        if let Some((related, strength)) = own.or_else(of_root) {
            for (term, nearness) in related {
                terms.add(*term, strength * nearness / 1000, false);
            }
        }
    }

    fn expand_corrected(&self, word: &GoalWord, terms: &mut Terms) {
        for (stem, likeness) in self.nearest_spellings(&word.stem) {
            let corrected = GoalWord { stem: stem.to_owned(), ..word.clone() };
            self.expand(&corrected, word.strength * likeness / 1000 * MISSPELT / 1000, terms);
        }
    }

    /// Returns the spellings nearest to a stem, each with its likeness in thousandths. There are several only
    /// if they are equally near.
    fn nearest_spellings(&self, stem: &str) -> Vec<(&str, u64)> {
        let Some(first) = stem.chars().next().filter(|_| is_worth_correcting(stem)) else {
            return Vec::new();
        };
        let pairs = letter_pairs(stem);
        let known = self.spellings.get(&first).into_iter().flatten();
        let near: Vec<(&str, u64)> = known
            .filter(|spelling| spelling.pairs.len().abs_diff(pairs.len()) <= MAX_LENGTH_DIFFERENCE)
            .map(|spelling| (spelling.stem.as_str(), likeness(&pairs, &spelling.pairs)))
            .filter(|(_, likeness)| *likeness >= MIN_LIKENESS)
            .collect();
        let best = near.iter().map(|(_, likeness)| *likeness).max().unwrap_or_default();
        near.into_iter().filter(|(_, likeness)| *likeness == best).collect()
    }
}

/// Collects terms with their greatest strength and whether the match is literal.
#[derive(Debug, Default)]
struct Terms(BTreeMap<TermNumber, (u64, bool)>);

impl Terms {
    fn add(&mut self, term: TermNumber, strength: u64, is_literal: bool) {
        let known = self.0.entry(term).or_default();
        *known = (strength, is_literal).max(*known);
    }

    fn into_meanings(self) -> Vec<Meaning> {
        let to_meaning = |(term, (strength, is_literal))| Meaning { term, strength, is_literal };
        self.0.into_iter().map(to_meaning).collect()
    }
}

fn is_worth_correcting(stem: &str) -> bool {
    stem.chars().count() >= MIN_MISSPELT_CHARS && stem.chars().all(char::is_alphabetic)
}

/// Returns the sorted pairs of neighbouring letters of a word, including its start and end.
fn letter_pairs(stem: &str) -> Vec<(char, char)> {
    let letters: Vec<char> = std::iter::once('^').chain(stem.chars()).chain(std::iter::once('$')).collect();
    let mut pairs: Vec<(char, char)> = letters.iter().copied().zip(letters.iter().copied().skip(1)).collect();
    pairs.sort_unstable();
    pairs
}

/// Returns the share of letter pairs that two words have in common, in thousandths.
fn likeness(one: &[(char, char)], other: &[(char, char)]) -> u64 {
    let (mut left, mut right, mut common) = (one.iter().peekable(), other.iter().peekable(), 0_u64);
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        match a.cmp(b) {
            std::cmp::Ordering::Less => _ = left.next(),
            std::cmp::Ordering::Greater => _ = right.next(),
            std::cmp::Ordering::Equal => {
                common += 1;
                left.next();
                right.next();
            }
        }
    }
    2000 * common / (one.len() + other.len()).max(1) as u64
}
