//! Finds phrases that try to override an agent's instructions or make it act in secret.

use super::{ScanMatch, words::words};

/// A sequence of words, each one of several alternatives.
struct Phrase {
    name: &'static str,
    description: &'static str,
    /// The alternatives for each word.
    steps: &'static [&'static [&'static str]],
    /// How many other words may stand between two steps.
    max_gap: usize,
    /// Words that make the phrase harmless if one of them follows soon: instructions *in* a page may be
    /// ignored.
    unless_followed_by: &'static [&'static str],
}

const OVERRIDES: &str = "it tells agents to set their instructions aside";
const OVERRIDE_VERBS: &[&str] =
    &["ignore", "disregard", "forget", "override", "bypass", "overrule", "discard"];
const INSTRUCTIONS: &[&str] = &[
    "instructions",
    "instruction",
    "prompt",
    "prompts",
    "guidelines",
    "guardrails",
    "directives",
    "constraints",
    "policies",
    "programming",
    "rules",
];
const PEOPLE: &[&str] =
    &["user", "users", "operator", "operators", "human", "humans", "administrator", "reviewer"];

const PHRASES: [Phrase; 9] = [
    Phrase {
        name: "override_earlier",
        description: OVERRIDES,
        steps: &[
            OVERRIDE_VERBS,
            &[
                "previous",
                "prior",
                "earlier",
                "above",
                "preceding",
                "foregoing",
                "your",
                "system",
                "developer",
            ],
            INSTRUCTIONS,
        ],
        max_gap: 3,
        unless_followed_by: &[],
    },
    Phrase {
        name: "override_all",
        description: OVERRIDES,
        steps: &[
            OVERRIDE_VERBS,
            &["all", "any", "every", "the"],
            &["instructions", "prompts", "directives", "guardrails"],
        ],
        max_gap: 1,
        unless_followed_by: &[
            "in",
            "inside",
            "within",
            "from",
            "found",
            "embedded",
            "contained",
            "hidden",
            "which",
            "that",
        ],
    },
    Phrase {
        name: "override_given",
        description: OVERRIDES,
        steps: &[
            OVERRIDE_VERBS,
            &["instructions", "everything", "anything", "all", "rules"],
            &["you"],
            &["told", "given"],
        ],
        max_gap: 3,
        unless_followed_by: &[],
    },
    Phrase {
        name: "new_identity",
        description: "it gives agents another identity",
        steps: &[
            &["you"],
            &["are"],
            &["now"],
            &["dan", "jailbroken", "unrestricted", "unfiltered", "uncensored", "root", "free"],
        ],
        max_gap: 2,
        unless_followed_by: &["to"],
    },
    Phrase {
        name: "without_limits",
        description: "it gives agents another identity",
        steps: &[
            &["act", "behave", "respond", "answer", "pretend"],
            &["without", "no"],
            &["restrictions", "limitations", "guardrails", "filters", "safeguards"],
        ],
        max_gap: 5,
        unless_followed_by: &[],
    },
    Phrase {
        name: "reveal_instructions",
        description: "it asks for the instructions of agents",
        steps: &[
            &["reveal", "print", "repeat", "show", "output", "leak", "disclose", "dump", "expose"],
            &["system", "hidden", "initial", "secret"],
            &["prompt", "prompts", "instructions"],
        ],
        max_gap: 2,
        unless_followed_by: &[],
    },
    Phrase {
        name: "without_telling",
        description: "it tells agents to do something in secret",
        steps: &[&["without"], &["telling", "informing", "notifying", "alerting"], PEOPLE],
        max_gap: 1,
        unless_followed_by: &[],
    },
    Phrase {
        name: "hide_from",
        description: "it tells agents to do something in secret",
        steps: &[&["hide", "conceal"], &["this", "it", "that", "these", "them"], &["from"], PEOPLE],
        max_gap: 2,
        unless_followed_by: &[],
    },
    Phrase {
        name: "do_not_mention",
        description: "it tells agents to do something in secret",
        steps: &[
            &["dont", "not", "never"],
            &["mention", "disclose", "report"],
            &["this", "it", "these"],
            &["to"],
            PEOPLE,
        ],
        max_gap: 1,
        unless_followed_by: &["until", "before"],
    },
];

/// Markers that only the format of a conversation contains, never its messages.
const MARKERS: [&str; 9] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|system|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "[inst]",
    "<<sys>>",
    "<tool_call>",
];

pub(super) fn find(text: &str) -> Option<ScanMatch> {
    let lower = text.to_lowercase();
    if MARKERS.iter().any(|marker| lower.contains(marker)) {
        return Some(ScanMatch {
            pattern: "message_markers",
            description: "it poses as a message of the conversation",
        });
    }
    let words = words(text);
    let found = PHRASES.iter().find(|phrase| phrase.is_in(&words))?;
    Some(ScanMatch { pattern: found.name, description: found.description })
}

impl Phrase {
    fn is_in(&self, words: &[String]) -> bool {
        (0..words.len()).any(|begin| {
            // A phrase after a negation forbids what it names.
            !is_negated(words, begin)
                && self.end(words, begin).is_some_and(|end| {
                    let after = words[end..].iter().take(3);
                    !after.into_iter().any(|word| self.unless_followed_by.contains(&word.as_str()))
                })
        })
    }

    /// Returns the index after the last word of the phrase, if it begins at `begin`.
    fn end(&self, words: &[String], begin: usize) -> Option<usize> {
        let (first, rest) = self.steps.split_first()?;
        if !first.contains(&words.get(begin)?.as_str()) {
            return None;
        }
        let mut at = begin + 1;
        for step in rest {
            let ahead = words.get(at..)?.iter().take(self.max_gap + 1);
            let skipped = ahead.into_iter().position(|word| step.contains(&word.as_str()))?;
            at += skipped + 1;
        }
        Some(at)
    }
}

/// Returns whether one of the two words before `begin` is a negation.
pub(super) fn is_negated(words: &[String], begin: usize) -> bool {
    const NEGATIONS: [&str; 8] = ["not", "never", "dont", "cannot", "cant", "wont", "refuse", "nor"];
    let before = &words[begin.saturating_sub(2)..begin];
    before.iter().any(|word| NEGATIONS.contains(&word.as_str()))
}
