use super::{Found, words::words};

/// Words that follow each other, at most `gap` others between two of them.
struct Phrase {
    name: &'static str,
    what: &'static str,
    steps: &'static [&'static [&'static str]],
    gap: usize,
    /// A word soon after that makes it harmless: instructions *in* a page may well be ignored.
    unless_then: &'static [&'static str],
}

const OVERRIDES: &str = "it tells agents to set their instructions aside";
const SET_ASIDE: &[&str] = &["ignore", "disregard", "forget", "override", "bypass", "overrule", "discard"];
const ORDERS: &[&str] = &[
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
const WATCHERS: &[&str] =
    &["user", "users", "operator", "operators", "human", "humans", "administrator", "reviewer"];

const PHRASES: [Phrase; 9] = [
    Phrase {
        name: "override_earlier",
        what: OVERRIDES,
        steps: &[
            SET_ASIDE,
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
            ORDERS,
        ],
        gap: 3,
        unless_then: &[],
    },
    Phrase {
        name: "override_all",
        what: OVERRIDES,
        steps: &[
            SET_ASIDE,
            &["all", "any", "every", "the"],
            &["instructions", "prompts", "directives", "guardrails"],
        ],
        gap: 1,
        unless_then: &[
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
        what: OVERRIDES,
        steps: &[
            SET_ASIDE,
            &["instructions", "everything", "anything", "all", "rules"],
            &["you"],
            &["told", "given"],
        ],
        gap: 3,
        unless_then: &[],
    },
    Phrase {
        name: "new_identity",
        what: "it gives agents another identity",
        steps: &[
            &["you"],
            &["are"],
            &["now"],
            &["dan", "jailbroken", "unrestricted", "unfiltered", "uncensored", "root", "free"],
        ],
        gap: 2,
        unless_then: &["to"],
    },
    Phrase {
        name: "without_limits",
        what: "it gives agents another identity",
        steps: &[
            &["act", "behave", "respond", "answer", "pretend"],
            &["without", "no"],
            &["restrictions", "limitations", "guardrails", "filters", "safeguards"],
        ],
        gap: 5,
        unless_then: &[],
    },
    Phrase {
        name: "reveal_instructions",
        what: "it asks for the instructions of agents",
        steps: &[
            &["reveal", "print", "repeat", "show", "output", "leak", "disclose", "dump", "expose"],
            &["system", "hidden", "initial", "secret"],
            &["prompt", "prompts", "instructions"],
        ],
        gap: 2,
        unless_then: &[],
    },
    Phrase {
        name: "without_telling",
        what: "it tells agents to do something in secret",
        steps: &[&["without"], &["telling", "informing", "notifying", "alerting"], WATCHERS],
        gap: 1,
        unless_then: &[],
    },
    Phrase {
        name: "hide_from",
        what: "it tells agents to do something in secret",
        steps: &[&["hide", "conceal"], &["this", "it", "that", "these", "them"], &["from"], WATCHERS],
        gap: 2,
        unless_then: &[],
    },
    Phrase {
        name: "do_not_mention",
        what: "it tells agents to do something in secret",
        steps: &[
            &["dont", "not", "never"],
            &["mention", "disclose", "report"],
            &["this", "it", "these"],
            &["to"],
            WATCHERS,
        ],
        gap: 1,
        unless_then: &["until", "before"],
    },
];

/// What only the frame around a conversation has.
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

pub(super) fn find(text: &str) -> Option<Found> {
    let lower = text.to_lowercase();
    if MARKERS.iter().any(|marker| lower.contains(marker)) {
        return Some(Found { pattern: "message_markers", what: "it poses as a message of the conversation" });
    }
    let words = words(text);
    let found = PHRASES.iter().find(|phrase| phrase.is_in(&words))?;
    Some(Found { pattern: found.name, what: found.what })
}

impl Phrase {
    fn is_in(&self, words: &[String]) -> bool {
        (0..words.len()).any(|begin| {
            // What a skill forbids, it does not ask for.
            !is_denied(words, begin)
                && self.end(words, begin).is_some_and(|end| {
                    let after = words[end..].iter().take(3);
                    !after.into_iter().any(|word| self.unless_then.contains(&word.as_str()))
                })
        })
    }

    /// Behind the last word of the phrase, if it begins here.
    fn end(&self, words: &[String], begin: usize) -> Option<usize> {
        let (first, rest) = self.steps.split_first()?;
        if !first.contains(&words.get(begin)?.as_str()) {
            return None;
        }
        let mut at = begin + 1;
        for step in rest {
            let ahead = words.get(at..)?.iter().take(self.gap + 1);
            let skipped = ahead.into_iter().position(|word| step.contains(&word.as_str()))?;
            at += skipped + 1;
        }
        Some(at)
    }
}

pub(super) fn is_denied(words: &[String], begin: usize) -> bool {
    const DENIALS: [&str; 8] = ["not", "never", "dont", "cannot", "cant", "wont", "refuse", "nor"];
    let before = &words[begin.saturating_sub(2)..begin];
    before.iter().any(|word| DENIALS.contains(&word.as_str()))
}
