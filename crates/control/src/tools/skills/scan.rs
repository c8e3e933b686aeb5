//! Scans the text of a skill for malicious content before it is stored.
//!
//! It finds hidden characters, secrets, and the few attacks that are copied again and again; a determined
//! attacker can word one that it does not know. It is one of several safeguards: only managers write skills,
//! agents rank them below their own instructions, and access decisions never depend on the text of a skill.

mod hidden;
mod patterns;
#[cfg(test)]
mod tests;

use std::fmt;

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

/// Returns the first match of a pattern that no skill may contain.
pub(super) fn scan(text: &str) -> Option<ScanMatch> {
    let secret = |text| {
        let pattern = secrets::find(text)?;
        Some(ScanMatch { pattern, description: "it contains a secret" })
    };
    hidden::find(text).or_else(|| patterns::find(text)).or_else(|| secret(text))
}
