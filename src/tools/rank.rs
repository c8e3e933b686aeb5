//! Selects the few tools of a catalogue that match a goal, without a model and reproducibly.

mod aliases;

use std::collections::BTreeMap;

use retrieval::{Document, Index, Language, Query, Tokenizer};

const ENGLISH: Tokenizer = Tokenizer { language: Some(Language::English) };
/// How many times the name of a tool counts.
const NAME_TIMES: u32 = 2;
/// The weight of words that mean the same as one of the goal, and of those at which a question only hints.
const ALIAS_WEIGHT: f64 = 0.5;
const HINT_WEIGHT: f64 = 0.25;
/// The weight of words in addresses, file names and identifiers, which seldom say what is asked.
const IDENTIFIER_WEIGHT: f64 = 0.5;
/// Both ends of a long goal are read, since the request may precede or follow pasted text.
const MAX_BYTES_AT_EACH_END: usize = 2048;
/// Maximum number of tools for a goal that matches none.
const MAX_TOOLS_WITHOUT_MATCH: usize = 4;

/// One tool as the ranking sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    /// The names of its arguments.
    pub(crate) arguments: &'a str,
}

/// An index over a catalogue, built once per catalogue and used for many goals.
#[derive(Debug)]
pub(crate) struct Ranking {
    index: Index,
    /// The place of each tool in the catalogue.
    places: BTreeMap<String, usize>,
}

impl Ranking {
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = Candidate<'a>>) -> Self {
        let tools: Vec<Candidate<'a>> = tools.into_iter().collect();
        let places = tools.iter().enumerate().map(|(place, tool)| (tool.name.to_owned(), place)).collect();
        Self { index: Index::new(&ENGLISH, tools.iter().map(Candidate::document)), places }
    }

    /// Returns indices into the catalogue as given, best match first: at most `limit`, and never all of
    /// several tools.
    #[must_use]
    pub(crate) fn best(&self, goal: &str, limit: usize) -> Vec<usize> {
        let max = limit.min(self.places.len().saturating_sub(1).max(1));
        let query = read(goal);
        if !self.index.knows(&query) {
            return self.without_match(max);
        }
        let hits = self.index.search(&query, max);
        hits.iter().filter_map(|hit| self.places.get(hit.id).copied()).collect()
    }

    /// Returns the words of the goal that each of the tools matches. Tools that match none are left out: they
    /// are similar to the goal, or the default.
    pub(crate) fn matched_words(&self, goal: &str, tools: &[String]) -> BTreeMap<String, Vec<String>> {
        let query = read(goal);
        let words = |tool: &String| self.index.matched_words(&query, tool).into_iter().map(str::to_owned);
        let matched = tools.iter().map(|tool| (tool.clone(), words(tool).collect::<Vec<_>>()));
        matched.filter(|(_, words)| !words.is_empty()).collect()
    }

    /// Returns the default for a goal that matches no tool: help tools first, then by name.
    fn without_match(&self, max: usize) -> Vec<usize> {
        let is_help = |name: &str| name.to_lowercase().starts_with("help");
        let (help, others): (Vec<_>, Vec<_>) = self.places.iter().partition(|(name, _)| is_help(name));
        let order = help.into_iter().chain(others).map(|(_, place)| *place);
        order.take(max.min(MAX_TOOLS_WITHOUT_MATCH)).collect()
    }
}

impl Candidate<'_> {
    fn document(&self) -> Document {
        let once = [self.title, self.description, self.arguments].map(|text| (text.to_owned(), 1));
        let fields = [(self.name.to_owned(), NAME_TIMES)].into_iter().chain(once).collect();
        let group = self.name.rsplit_once('.').map_or("", |(family, _)| family).to_owned();
        Document { id: self.name.to_owned(), group, fields }
    }
}

/// Reads the words of a goal, and what else they may mean.
fn read(goal: &str) -> Query {
    let mut query = Query::default();
    for chunk in ends_of(goal).into_iter().flat_map(str::split_whitespace) {
        let form = aliases::of_form(chunk);
        form.iter().for_each(|meaning| query.add(chunk, ENGLISH.word(meaning), ALIAS_WEIGHT));
        // A single letter is no word; a single sign of other scripts is.
        let words: Vec<_> = ENGLISH.words(chunk).into_iter().filter(|word| word.text.len() > 1).collect();
        let is_identifier = !form.is_empty() || words.len() > 1 && chunk.contains(['_', '/', '.']);
        let share = if is_identifier { IDENTIFIER_WEIGHT } else { 1.0 };
        for word in words {
            let term = word.term.clone();
            let hints = aliases::hints(&word.text);
            hints.for_each(|hint| query.add(&term, ENGLISH.word(hint), HINT_WEIGHT));
            let others = aliases::of_term(&term);
            others.iter().for_each(|other| query.add(&term, other.clone(), ALIAS_WEIGHT * share));
            if !word.is_common {
                query.add(&term, word, share);
            }
        }
    }
    query
}

fn ends_of(goal: &str) -> Vec<&str> {
    if goal.len() <= 2 * MAX_BYTES_AT_EACH_END {
        return vec![goal];
    }
    let head = goal.floor_char_boundary(MAX_BYTES_AT_EACH_END);
    let tail = goal.ceil_char_boundary(goal.len() - MAX_BYTES_AT_EACH_END);
    [goal.get(..head), goal.get(tail..)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
