//! Looks through the text of a skill before any agent reads it.
//!
//! It works by tables of what is known to be used against agents. It catches what is careless or copied; whoever is
//! determined finds words that it does not know. So it is one guard of several: skills are written by managers alone, agents
//! treat them as material below their own instructions, and every call is decided without looking at what a skill says.

mod commands;
mod hidden;
mod leaks;
mod phrases;
mod secrets;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;

pub(in crate::tools) use hidden::is_hidden;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The name of the pattern, for whoever wants to know why.
    pub(super) pattern: &'static str,
    what: &'static str,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.pattern)
    }
}

/// Whether a text holds something that looks like a secret.
pub(crate) fn holds_a_secret(text: &str) -> bool {
    secrets::find(text).is_some()
}

/// The first thing in the text that no skill may hold.
pub(super) fn scan(text: &str) -> Option<Found> {
    let looks: [fn(&str) -> Option<Found>; 5] =
        [hidden::find, phrases::find, commands::find, leaks::find, secrets::find];
    looks.into_iter().find_map(|look| look(text))
}
