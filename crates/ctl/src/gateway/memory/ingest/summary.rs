//! What a run of an ingest did.

use serde::Serialize;

use super::super::super::print_json;
use crate::{error::Exit, print};

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) changed: usize,
    pub(super) unchanged: usize,
    pub(super) removed: usize,
    skipped: Vec<Skipped>,
    /// How many of the skipped ones the gateway refused.
    pub(super) refused: usize,
    /// How many folders were left out because their rules cannot be read.
    pub(super) unruled: usize,
    /// How many former texts were to be replaced and could not be sent in time.
    #[serde(skip)]
    pub(super) kept: usize,
    /// Whether what was skipped may be taken later as it is: its file can be read, other texts made room, or
    /// the link is faster.
    #[serde(skip)]
    pub(super) may_succeed_later: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Skipped {
    path: String,
    why: String,
}

impl Summary {
    pub(super) fn new(unruled: usize) -> Self {
        Self { unruled, ..Self::default() }
    }

    pub(super) fn skip(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.skipped.push(Skipped { path: path.into(), why: why.into() });
    }

    /// Returns whether a run after this one is worth a word.
    pub(super) fn has_news(&self, before: &Self) -> bool {
        self.changed + self.removed > 0 || self != before
    }

    /// Prints the summary. A run has failed if the gateway refused a text, or a folder was left out
    /// because its rules cannot be read.
    pub(super) fn report(&self, json: bool) -> Exit {
        print::progress("");
        let exit = if self.refused + self.unruled == 0 { Exit::Done } else { Exit::Failed };
        if json {
            print_json(self);
            return exit;
        }
        for Skipped { path, why } in &self.skipped {
            print::line(&format!("skipped {}: {}", print::one_line(path), print::one_line(why)));
        }
        let Self { changed, unchanged, removed, skipped, .. } = self;
        let skipped = skipped.len();
        print::line(&format!(
            "{changed} new or changed, {unchanged} unchanged, {removed} removed, {skipped} skipped"
        ));
        if changed + unchanged + removed + skipped == 0 {
            print::note("no files; hidden ones, and those that a .gitignore or .ignore names, are left out");
        }
        exit
    }
}
