//! Selects the few tools of a catalogue that match a goal, without a model and reproducibly.
//!
//! All arithmetic is on integers, so that the same catalogue and goal give the same order everywhere.

mod forms;
mod goal;
mod grammar;
mod lexicon;
mod phrases;
mod synonyms;
mod vocabulary;
mod words;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use lexicon::Lexicon;
use vocabulary::{Meaning, Vocabulary};

/// The weight of a word of a tool by where it occurs, in thousandths.
const IN_NAME: u64 = 1000;
const IN_DESCRIPTION: u64 = 600;
/// The share, in thousandths, that further words of the goal add when they mean the same word of a tool.
const REPEATED_MATCH_SHARE: u64 = 250;
/// The penalty for each word of the tool's name that the goal does not mention, which suggests a more special
/// tool.
const UNMATCHED_NAME_PENALTY: u64 = 100;
/// How much a long description, compared with the average, weakens a match, in thousandths.
const LENGTH_WEIGHT: u64 = 300;
/// The rarity of a word that all tools share: even such a match counts.
const MIN_RARITY: u64 = 400;
/// Maximum number of tools for a goal that matches none.
const MAX_TOOLS_WITHOUT_MATCH: usize = 4;

/// One tool as the ranking sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
}

/// An index over a catalogue, built once per catalogue and used for many goals.
#[derive(Debug)]
pub(crate) struct Ranking {
    vocabulary: Vocabulary,
    /// The occurrences of each term.
    occurrences: Vec<Vec<Occurrence>>,
    tools: Vec<Tool>,
    /// Number of word slots; each tool has a range of them.
    slots: usize,
}

#[derive(Debug)]
struct Tool {
    /// Position in the order by name, which decides ties.
    place_by_name: usize,
    is_helper: bool,
    slots: Range<usize>,
    slots_of_name: Vec<usize>,
}

#[derive(Debug)]
struct Occurrence {
    tool: usize,
    slot: usize,
    weight: u64,
}

/// What the words of the goal contribute to one word of one tool.
#[derive(Clone, Copy, Debug, Default)]
struct Gain {
    best: u64,
    sum: u64,
}

impl Ranking {
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = Candidate<'a>>) -> Self {
        let candidates: Vec<Candidate<'a>> = tools.into_iter().collect();
        let fields: Vec<Fields> = candidates.iter().map(Fields::of).collect();
        let stems: BTreeSet<String> = fields.iter().flat_map(|field| field.stems.keys().cloned()).collect();
        let mut ranking = Self {
            occurrences: stems.iter().map(|_| Vec::new()).collect(),
            vocabulary: Vocabulary::of(stems, Lexicon::shared()),
            tools: Vec::new(),
            slots: 0,
        };
        let usual_length = usual_length(&fields);
        let places = places_by_name(&candidates);
        for ((candidate, field), place_by_name) in candidates.iter().zip(&fields).zip(places) {
            ranking.add(candidate, field, place_by_name, usual_length);
        }
        ranking
    }

    fn add(&mut self, candidate: &Candidate<'_>, fields: &Fields, place_by_name: usize, usual_length: u64) {
        let slots = self.slots..self.slots + fields.stems.len();
        let tool = self.tools.len();
        for (slot, (stem, in_name)) in slots.clone().zip(&fields.stems) {
            let weight = if *in_name { IN_NAME } else { fields.description_weight(usual_length) };
            let term = self.vocabulary.number(stem);
            if let Some(occurrences) = term.and_then(|term| self.occurrences.get_mut(term)) {
                occurrences.push(Occurrence { tool, slot, weight });
            }
        }
        self.slots = slots.end;
        let words_of_name = slots.clone().zip(fields.stems.values()).filter(|(_, in_name)| **in_name);
        let slots_of_name = words_of_name.map(|(slot, _)| slot).collect();
        let is_helper = candidate.name.to_lowercase().starts_with("help");
        self.tools.push(Tool { place_by_name, is_helper, slots, slots_of_name });
    }

    /// Returns indices into the catalogue as given, best match first: at most `limit`, and never all of
    /// several tools.
    #[must_use]
    pub(crate) fn best(&self, goal: &str, limit: usize) -> Vec<usize> {
        let max = limit.min(self.tools.len().saturating_sub(1).max(1));
        let scores = self.scores(goal);
        let mut matching: Vec<(Reverse<u64>, usize, usize)> = (scores.iter().zip(&self.tools).enumerate())
            .filter(|(_, (score, _))| **score > 0)
            .map(|(index, (score, tool))| (Reverse(*score), tool.place_by_name, index))
            .collect();
        if matching.is_empty() {
            return self.without_match(max);
        }
        matching.sort_unstable();
        matching.into_iter().take(max).map(|(_, _, index)| index).collect()
    }

    /// Returns the default for a goal that matches no tool: help tools first, then by name.
    fn without_match(&self, max: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tools.len()).collect();
        order.sort_by_key(|index| self.tools.get(*index).map(|tool| (!tool.is_helper, tool.place_by_name)));
        order.truncate(max.min(MAX_TOOLS_WITHOUT_MATCH));
        order
    }

    fn scores(&self, goal: &str) -> Vec<u64> {
        let goal_words = goal::read(goal, Lexicon::shared());
        let mut gains = vec![Gain::default(); self.slots];
        let mut best_of_tools = vec![None; self.tools.len()];
        for meanings in self.vocabulary.meanings(&goal_words) {
            self.find_best_of_tools(&meanings, &mut best_of_tools);
            for (gain, Reverse(slot)) in best_of_tools.iter_mut().filter_map(Option::take) {
                if let Some(known) = gains.get_mut(slot) {
                    known.best = known.best.max(gain);
                    known.sum += gain;
                }
            }
        }
        self.tools.iter().map(|tool| tool.score(&gains)).collect()
    }

    /// Finds for each tool the word that one word of the goal matches best, and what that match is worth.
    fn find_best_of_tools(&self, meanings: &[Meaning], best_of_tools: &mut [Option<(u64, Reverse<usize>)>]) {
        let rarity_of_meaning = self.rarity(self.tools_touched(meanings));
        for meaning in meanings {
            let Some(occurrences) = self.occurrences.get(meaning.term) else { continue };
            let rarity_of_term = self.rarity(occurrences.len());
            let rarity =
                if meaning.is_literal { rarity_of_term } else { rarity_of_term.min(rarity_of_meaning) };
            for occurrence in occurrences {
                let gain = meaning.strength * rarity / 1000 * occurrence.weight / 1000;
                if let Some(known) = best_of_tools.get_mut(occurrence.tool) {
                    *known = Some((gain, Reverse(occurrence.slot))).max(*known);
                }
            }
        }
    }

    fn tools_touched(&self, meanings: &[Meaning]) -> usize {
        let mut touched = vec![false; self.tools.len()];
        let terms = meanings.iter().filter_map(|meaning| self.occurrences.get(meaning.term));
        for occurrence in terms.flatten() {
            if let Some(tool) = touched.get_mut(occurrence.tool) {
                *tool = true;
            }
        }
        touched.into_iter().filter(|tool| *tool).count()
    }

    /// Returns the weight of a match by the number of tools in which it occurs: the fewer, the higher.
    fn rarity(&self, occurrences: usize) -> u64 {
        let all = binary_logarithm(2 * self.tools.len() as u64 + 2);
        let some = binary_logarithm(2 * occurrences as u64 + 1);
        MIN_RARITY + all.saturating_sub(some)
    }
}

impl Tool {
    fn score(&self, gains: &[Gain]) -> u64 {
        let own = gains.get(self.slots.clone()).unwrap_or_default();
        let of_gain = |gain: &Gain| gain.best + (gain.sum - gain.best) * REPEATED_MATCH_SHARE / 1000;
        let unmatched =
            self.slots_of_name.iter().filter(|slot| gains.get(**slot).is_none_or(|gain| gain.best == 0));
        let sum: u64 = own.iter().map(of_gain).sum();
        sum * 1000 / (1000 + UNMATCHED_NAME_PENALTY * unmatched.count() as u64)
    }
}

/// The stems of a tool, each with whether it occurs in the name.
struct Fields {
    stems: BTreeMap<String, bool>,
    words_of_description: u64,
}

impl Fields {
    fn of(candidate: &Candidate<'_>) -> Self {
        let stems_of = |words: Vec<String>| -> BTreeSet<String> {
            words.iter().filter(|word| !words::is_stop_word(word)).map(|word| words::stem(word)).collect()
        };
        let description = stems_of(words::of_text(candidate.description));
        let words_of_description = description.len() as u64;
        let mut stems: BTreeMap<String, bool> = description.into_iter().map(|stem| (stem, false)).collect();
        stems.extend(stems_of(words::of_name(candidate.name)).into_iter().map(|stem| (stem, true)));
        Self { stems, words_of_description }
    }

    fn description_weight(&self, usual_length: u64) -> u64 {
        let relative = 1000 * self.words_of_description / usual_length;
        let thinned = 1000 - LENGTH_WEIGHT + LENGTH_WEIGHT * relative / 1000;
        IN_DESCRIPTION * 1000 / thinned
    }
}

/// Returns the average number of distinct words in a description, at least 1.
fn usual_length(fields: &[Fields]) -> u64 {
    let all: u64 = fields.iter().map(|field| field.words_of_description).sum();
    (all / (fields.len() as u64).max(1)).max(1)
}

fn places_by_name(candidates: &[Candidate<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|index| candidates.get(*index).map(|tool| (tool.name, tool.description)));
    let mut places = vec![0; order.len()];
    for (place, index) in order.into_iter().enumerate() {
        if let Some(known) = places.get_mut(index) {
            *known = place;
        }
    }
    places
}

/// Returns the binary logarithm in thousandths, by repeated squaring on integers, so that it is the same on
/// every machine.
fn binary_logarithm(number: u64) -> u64 {
    let whole = u64::from(number.max(1).ilog2());
    let one = 1_u128 << 32;
    let mut rest = (u128::from(number.max(1)) << 32) >> whole;
    let mut fraction = 0;
    for bit in 1..=10_u32 {
        rest = (rest * rest) >> 32;
        if rest >= 2 * one {
            rest >>= 1;
            fraction += 1024 >> bit;
        }
    }
    whole * 1000 + fraction * 1000 / 1024
}

#[cfg(test)]
mod tests;
