//! The waits of requests for an open turn. Each has an id, so that a call which is repeated, or comes late,
//! counts once.

use std::collections::BTreeMap;

use super::parse;
use crate::ToolError;
use store::entity::turn;

/// How many waits that have ended are kept, so that a beginning which comes after its end does not count.
const MAX_ENDED: usize = 50;

/// The waits of a turn by their ids, which grow with time, and whether each goes on.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<String, bool>);

impl Waits {
    /// Returns the JSON that is stored of a turn for which one request waits.
    pub(super) fn json_of_one(id: &str) -> String {
        let mut waits = Self::default();
        waits.begin(id);
        waits.to_json()
    }

    pub(super) fn of(row: &turn::Model) -> Result<Self, ToolError> {
        match &row.wait_ids {
            Some(json) => parse("the waits of a turn", json).map(Self),
            None => Ok(Self::default()),
        }
    }

    /// Begins a wait, unless it is known.
    pub(super) fn begin(&mut self, id: &str) {
        self.0.entry(id.to_owned()).or_insert(true);
    }

    /// Ends a wait, also one whose beginning is still to come. Forgets those that ended long ago.
    pub(super) fn end(&mut self, id: &str) {
        self.0.insert(id.to_owned(), false);
        let ended = self.0.values().filter(|goes_on| !**goes_on).count();
        let mut surplus = ended.saturating_sub(MAX_ENDED);
        self.0.retain(|_, goes_on| {
            let is_forgotten = !*goes_on && surplus > 0;
            surplus -= usize::from(is_forgotten);
            !is_forgotten
        });
    }

    /// Returns whether a request waits.
    pub(super) fn is_any_open(&self) -> bool {
        self.0.values().any(|goes_on| *goes_on)
    }

    pub(super) fn to_json(&self) -> String {
        subjects::encode_json_text(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_that_is_begun_or_ended_again_counts_once() {
        let mut waits = Waits::default();
        assert!(!waits.is_any_open());
        waits.begin("a");
        waits.begin("a");
        waits.end("a");
        assert!(!waits.is_any_open());
        waits.begin("a");
        assert!(!waits.is_any_open(), "its beginning was repeated late");
        waits.end("b");
        waits.begin("b");
        assert!(!waits.is_any_open(), "its beginning was overtaken by its end");
        waits.begin("c");
        waits.end("a");
        assert!(waits.is_any_open());
    }

    #[test]
    fn waits_that_ended_long_ago_are_forgotten() {
        let mut waits = Waits::default();
        waits.begin("0000");
        for number in 1..=MAX_ENDED + 5 {
            waits.end(&format!("{number:04}"));
        }
        assert_eq!(waits.0.len(), 1 + MAX_ENDED);
        assert!(waits.is_any_open() && waits.0.contains_key(&format!("{:04}", MAX_ENDED + 5)));
        assert!(!waits.0.contains_key("0001"));
    }
}
