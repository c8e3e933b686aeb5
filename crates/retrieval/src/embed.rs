//! Turns text into a vector: the character n-grams of its words, hashed with a sign into a few dimensions.
//!
//! The vector of a document depends on its text and language alone. How rare an n-gram is weighs in the
//! query, so that stored vectors stay as they are while other documents come and go.

use std::collections::BTreeSet;

/// Changes whenever the same text would give another vector.
pub const EMBEDDER_VERSION: u32 = 1;
pub const DIMENSIONS: usize = 2048;
/// How many different [`Slot`]s there are.
pub const SLOTS: usize = 1 << 16;
const GRAM_CHARS: std::ops::RangeInclusive<usize> = 3..=5;
/// Decides which n-grams collide. Others change nDCG by about 0.002 and recall by 0.008 on the sets of
/// `make bench-memory`, whose goals this one reaches.
const SEED: u64 = 7;

/// Where the documents with an n-gram are counted. N-grams that share a slot are counted as one.
pub type Slot = u16;

/// The direction of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    pub(crate) components: Box<[i8]>,
    length: f64,
}

/// The n-grams of a text with their weights, as they come.
#[derive(Clone, Debug, Default)]
pub struct Grams(Vec<(u64, f64)>);

impl Vector {
    pub(crate) fn new(components: Box<[i8]>) -> Self {
        let squares: i32 = components.iter().map(|component| i32::from(*component).pow(2)).sum();
        Self { components, length: f64::from(squares).sqrt() }
    }

    /// Returns the components that are not 0, by dimension.
    pub(crate) fn nonzero_components(&self) -> Vec<(usize, i8)> {
        let components = self.components.iter().copied().enumerate();
        components.filter(|(_, component)| *component != 0).collect()
    }

    /// Returns the cosine of the angle between two vectors, or 0 if one of them has no direction.
    pub fn cosine(&self, other: &Self) -> f64 {
        let pairs = self.components.iter().zip(&other.components);
        // Products fit into 16 bits, which processors multiply faster.
        let product: i32 = pairs.map(|(left, right)| i32::from(i16::from(*left) * i16::from(*right))).sum();
        let lengths = self.length * other.length;
        if lengths > 0.0 { f64::from(product) / lengths } else { 0.0 }
    }
}

impl Grams {
    /// Counts a word of a document.
    pub fn count(&mut self, word: &str, times: u32) {
        for_each_gram(word, |gram| self.0.push((gram, f64::from(times))));
    }

    /// Weighs a word of a query. Long words have more n-grams, but do not say more.
    pub fn weigh(&mut self, word: &str, weight: f64) {
        let weight = weight / (word.chars().count() as f64).sqrt();
        for_each_gram(word, |gram| self.0.push((gram, weight)));
    }

    pub fn slots(&self) -> BTreeSet<Slot> {
        self.0.iter().map(|(gram, _)| slot(*gram)).collect()
    }

    pub(crate) fn sorted_slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self.0.iter().map(|(gram, _)| slot(*gram)).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Returns the vector of a document.
    pub fn to_vector(&self) -> Vector {
        self.project(|_, weights| 1.0 + ln(weights.iter().map(|(_, times)| times).sum()))
    }

    /// Returns the vector of a query among `documents`, of which `frequency` tells how many are in a slot.
    /// What none of them has is left out: it could only collide.
    pub fn to_query_vector(&self, documents: u64, frequency: impl Fn(Slot) -> u64) -> Vector {
        let greatest =
            |weights: &[(u64, f64)]| weights.iter().fold(0.0_f64, |most, (_, next)| most.max(*next));
        self.project(|gram, weights| match frequency(slot(gram)) {
            0 => 0.0,
            known => greatest(weights) * rarity(documents, known),
        })
    }

    fn project(&self, weight: impl Fn(u64, &[(u64, f64)]) -> f64) -> Vector {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by_key(|(gram, _)| *gram);
        let mut sums = vec![0.0_f64; DIMENSIONS];
        for same in sorted.chunk_by(|left, right| left.0 == right.0) {
            let gram = same.first().map_or(0, |(gram, _)| *gram);
            let sign = if gram >> 63 == 0 { 1.0 } else { -1.0 };
            let sum = sums.get_mut((gram >> 20) as usize % DIMENSIONS);
            sum.into_iter().for_each(|sum| *sum += sign * weight(gram, same));
        }
        let greatest = sums.iter().fold(f64::MIN_POSITIVE, |greatest, sum| greatest.max(sum.abs()));
        Vector::new(sums.iter().map(|sum| (sum / greatest * 127.0).round() as i8).collect())
    }
}

/// Returns how much a match says that is found in `frequency` of `documents`.
pub(crate) fn rarity(documents: u64, frequency: u64) -> f64 {
    let (documents, frequency) = (documents as f64, frequency.min(documents) as f64);
    ln(1.0 + (documents - frequency + 0.5) / (frequency + 0.5))
}

/// The neighbouring letters of a word, in order, each pair once.
#[derive(Debug, Default)]
pub(crate) struct LetterPairs(Vec<(char, char)>);

impl LetterPairs {
    pub(crate) fn of(word: &str) -> Self {
        let mut pairs = Self::default();
        pairs.read(word);
        pairs
    }

    /// Replaces the pairs by those of another word.
    pub(crate) fn read(&mut self, word: &str) {
        self.0.clear();
        let marked = || ['<'].into_iter().chain(word.chars()).chain(['>']);
        self.0.extend(marked().zip(marked().skip(1)));
        self.0.sort_unstable();
        self.0.dedup();
    }

    /// Returns the share of the pairs that two words have in common.
    pub(crate) fn likeness(&self, other: &Self) -> f64 {
        let common = self.0.iter().filter(|pair| other.0.binary_search(pair).is_ok()).count();
        2.0 * common as f64 / (self.0.len() + other.0.len()) as f64
    }
}

fn slot(gram: u64) -> Slot {
    (gram & 0xffff) as Slot
}

fn for_each_gram(word: &str, mut visit: impl FnMut(u64)) {
    let marked = format!("<{word}>");
    let ends = || marked.char_indices().map(|(at, _)| at).chain([marked.len()]);
    for chars in GRAM_CHARS {
        for (from, to) in ends().zip(ends().skip(chars)) {
            visit(hash(marked.as_bytes().get(from..to).unwrap_or_default()));
        }
    }
}

/// FNV-1a, and a last step that spreads it over all bits.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325 + SEED, step);
    let spread = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    spread ^ spread >> 32
}

/// Returns the natural logarithm of a number from 1. That of the standard library is the machine's own, and
/// not the same on all.
fn ln(number: f64) -> f64 {
    if number == 1.0 {
        return 0.0;
    }
    let exponent = (number.to_bits() >> 52) as i32 - 1023;
    let fraction = f64::from_bits(number.to_bits() & (u64::MAX >> 12) | 1023 << 52);
    let ratio = (fraction - 1.0) / (fraction + 1.0);
    let series = (0..20).rev().fold(0.0, |sum, term| sum * ratio * ratio + 2.0 / f64::from(2 * term + 1));
    f64::from(exponent) * std::f64::consts::LN_2 + ratio * series
}
