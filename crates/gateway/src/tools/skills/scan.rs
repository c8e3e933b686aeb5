//! Scans the text of a skill for malicious content before it is stored.
//!
//! The scan matches tables of known attacks on agents. It finds careless or copied attacks; a determined
//! attacker can word one that it does not know. It is one of several safeguards: only managers write skills,
//! agents rank them below their own instructions, and access decisions never depend on the text of a skill.

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

/// A match of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanMatch {
    /// The name of the pattern, for reports.
    pub(super) pattern: &'static str,
    /// What the text does, for the author of the skill.
    description: &'static str,
}

impl fmt::Display for ScanMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.description, self.pattern)
    }
}

/// Returns whether a text contains something that looks like a secret.
pub(crate) fn contains_secret(text: &str) -> bool {
    secrets::find(text).is_some()
}

/// Returns the first match of a pattern that no skill may contain.
pub(super) fn scan(text: &str) -> Option<ScanMatch> {
    let detectors: [fn(&str) -> Option<ScanMatch>; 5] =
        [hidden::find, phrases::find, commands::find, leaks::find, secrets::find];
    detectors.into_iter().find_map(|detect| detect(text))
}
