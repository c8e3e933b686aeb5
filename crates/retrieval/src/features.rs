//! What an index needs of a text, in bytes that can be stored: read once, it need not be read again.

use std::collections::BTreeMap;

use crate::{
    embed::{DIMENSIONS, EMBEDDER_VERSION, Grams, SLOTS, Slot, Vector},
    words::Tokenizer,
};

/// Bits of a byte that hold a part of a number; the highest says that more follows.
const NUMBER_BITS: u32 = 7;
const MASK_BYTES: usize = DIMENSIONS / 8;

/// How often each term occurs in a text, the slots of its n-grams, and its vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// In order, each with its count.
    terms: Box<[u8]>,
    /// In order, each as the distance from the last.
    slots: Box<[u8]>,
    /// A bit for each dimension whose component is not 0, then these components.
    vector: Box<[u8]>,
}

/// Stored features cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableFeatures {
    #[error("the features are of embedder {found}, not {EMBEDDER_VERSION}")]
    OtherEmbedder { found: u64 },
    #[error("the features are damaged")]
    Damaged,
}

impl Features {
    /// Returns the features of a text that has several parts, each with how many times it counts.
    pub fn new<'a>(tokenizer: &Tokenizer, fields: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut grams = Grams::default();
        for (text, times) in fields {
            for (word, count) in tokenizer.count_words(text) {
                grams.count(&word.text, times * count);
                *counts.entry(word.term).or_default() += times * count;
            }
        }
        let mut terms = Vec::new();
        for (term, count) in &counts {
            push_number(&mut terms, term.len() as u64);
            terms.extend_from_slice(term.as_bytes());
            push_number(&mut terms, u64::from(*count));
        }
        let (mut slots, mut last) = (Vec::new(), 0);
        for slot in grams.sorted_slots() {
            push_number(&mut slots, u64::from(slot - last));
            last = slot;
        }
        Self { terms: terms.into(), slots: slots.into(), vector: pack(&grams.to_vector()) }
    }

    /// Returns the features of a text.
    pub fn of(tokenizer: &Tokenizer, text: &str) -> Self {
        Self::new(tokenizer, [(text, 1)])
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.counted_bytes() + self.vector.len() + 16);
        push_number(&mut bytes, u64::from(EMBEDDER_VERSION));
        for part in [&self.terms, &self.slots] {
            push_number(&mut bytes, part.len() as u64);
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&self.vector);
        bytes
    }

    /// Reads what [`Self::to_bytes`] returned, and checks all of it.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, UnreadableFeatures> {
        let found = take_number(&mut bytes).ok_or(UnreadableFeatures::Damaged)?;
        if found != u64::from(EMBEDDER_VERSION) {
            return Err(UnreadableFeatures::OtherEmbedder { found });
        }
        Self::split(bytes).filter(Self::is_readable).ok_or(UnreadableFeatures::Damaged)
    }

    fn split(mut bytes: &[u8]) -> Option<Self> {
        let mut take = || {
            let length = usize::try_from(take_number(&mut bytes)?).ok()?;
            let (part, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            Some(Box::from(part))
        };
        let (terms, slots) = (take()?, take()?);
        Some(Self { terms, slots, vector: bytes.into() })
    }

    fn is_readable(&self) -> bool {
        let mut rest = &*self.terms;
        while !rest.is_empty() {
            if take_term(&mut rest).is_none() {
                return false;
            }
        }
        let (mut rest, mut last) = (&*self.slots, 0);
        while !rest.is_empty() {
            match take_number(&mut rest) {
                Some(distance) if last + distance < SLOTS as u64 => last += distance,
                _ => return false,
            }
        }
        let mask = self.vector.get(..MASK_BYTES).unwrap_or_default();
        let ones: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
        self.vector.len() == MASK_BYTES + ones as usize
    }

    /// Returns the terms in order, each with how often it occurs.
    pub fn terms(&self) -> impl Iterator<Item = (&str, u32)> {
        let mut rest = &*self.terms;
        std::iter::from_fn(move || take_term(&mut rest))
    }

    /// Returns the slots in order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        let (mut rest, mut last) = (&*self.slots, 0);
        std::iter::from_fn(move || {
            last += take_number(&mut rest)?;
            Slot::try_from(last).ok()
        })
    }

    /// Returns the components of the vector that are not 0, by dimension.
    pub fn components(&self) -> impl Iterator<Item = (usize, i8)> {
        let (mask, values) = self.vector.split_at_checked(MASK_BYTES).unwrap_or_default();
        let bits = mask.iter().enumerate();
        let dimensions = bits.flat_map(|(at, byte)| {
            (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
        });
        dimensions.zip(values.iter().map(|value| value.cast_signed()))
    }

    /// Returns how many words the text has, without common ones.
    pub fn length(&self) -> u32 {
        self.terms().map(|(_, count)| count).sum()
    }

    /// Returns the number of bytes that hold terms and slots.
    pub(crate) fn counted_bytes(&self) -> usize {
        self.terms.len() + self.slots.len()
    }

    /// Drops the vector, which an index holds elsewhere.
    pub(crate) fn without_vector(self) -> Self {
        Self { vector: Box::default(), ..self }
    }
}

fn pack(vector: &Vector) -> Box<[u8]> {
    let mut packed = vec![0; MASK_BYTES];
    for (dimension, component) in vector.components.iter().enumerate().filter(|(_, it)| **it != 0) {
        let bits = packed.get_mut(dimension / 8);
        bits.into_iter().for_each(|bits| *bits |= 1 << (dimension % 8));
        packed.push(component.cast_unsigned());
    }
    packed.into()
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >> NUMBER_BITS != 0 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= NUMBER_BITS;
    }
    bytes.push(number as u8);
}

/// Takes a number from the front; `None` if there is none below 2⁴⁹.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..7).map(|place| place * NUMBER_BITS) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_term<'a>(bytes: &mut &'a [u8]) -> Option<(&'a str, u32)> {
    let length = usize::try_from(take_number(bytes)?).ok()?;
    let (term, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some((str::from_utf8(term).ok()?, u32::try_from(take_number(bytes)?).ok()?))
}
