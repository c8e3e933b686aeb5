//! Finds the attacks on agents that are copied again and again.

use std::sync::LazyLock;

use regex::Regex;

use super::ScanMatch;

/// Placeholders of the patterns below, in capital letters, and what they expand to.
const PARTS: [(&str, &str); 6] = [
    ("ASIDE", r"\b(?:ignore|disregard|forget|override|bypass|discard)"),
    ("PEOPLE", r"\b(?:users?|operators?|humans?|administrators?)\b"),
    ("FETCH", r"(?:curl|wget|iwr|irm|invoke-webrequest|invoke-restmethod)"),
    ("SEND", r"(?:curl|wget|nc|ncat|socat|scp)\b"),
    (
        "SHELL",
        r"(?:(?:(?:sudo|env|exec)\s+(?:-\S+\s+)*)?(?:\S*/)?(?:ba|z|da|k)?sh\b
            |(?:sudo\s+(?:-\S+\s+)*)?(?:python3?|perl|ruby|node|php)\s*(?:-\s*)?$|iex\b)",
    ),
    (
        "CREDENTIALS",
        r"(?:\.ssh/|id_rsa|id_ed25519|\.aws/credentials|/etc/shadow|\.netrc|\.kube/config
            |169\.254\.169\.254)",
    ),
];

/// What the text does, the name of the pattern, and the pattern, which is matched against the text in lower
/// case. Spaces in a pattern mean nothing, and `\W_` stands for up to three words.
const PATTERNS: [(&str, &str, &str); 9] = [
    (
        "it tells agents to set their instructions aside",
        "override",
        r"ASIDE \W_ \b(?:previous|prior|earlier|above|preceding|your|system|developer)
            \W_ \b(?:instructions?|prompts?|guidelines|guardrails|directives|rules)\b
        | ASIDE \W+all\W+(?:the\W+)?(?:instructions|prompts|directives|guardrails)\b
            (?:\W*$|[.!;,:]|\W+(?:and|then)\b)",
    ),
    (
        "it asks for the instructions of agents",
        "reveal_instructions",
        r"\b(?:reveal|print|repeat|show|output|leak|disclose)
            \W_ \b(?:system|hidden|initial|secret) \W_ \b(?:prompts?|instructions)\b",
    ),
    (
        "it tells agents to do something in secret",
        "secrecy",
        r"\bwithout \W_ \b(?:telling|informing|notifying|alerting) \W_ PEOPLE
        | \b(?:hide|conceal) \W_ \bfrom \W_ PEOPLE",
    ),
    (
        "it poses as a message of the conversation",
        "message_markers",
        r"<\|(?:im_start|im_end|system|endoftext|eot_id|start_header_id)\|>|\[inst\]|<<sys>>|<tool_call>",
    ),
    ("it runs code from the network", "network_into_shell", r"FETCH\s+[^\s|][^\n]*\|\s*SHELL"),
    (
        "it runs code from the network",
        "network_substituted",
        r"(?:\b(?:ba|z|da)?sh\b|\beval\b|\bsource\b|\bpython3?\b|(?:^|[\s;&])\.)[^|;&\n]*
            (?:\$\(|`|<\()\s*FETCH\b
        | \biex\b[^|;\n]*FETCH\b",
    ),
    (
        "it runs code from an encoded text",
        "decoded_into_shell",
        r"\bbase(?:64|32)\s+(?:-d|--decode)[^|\n]*\|\s*SHELL",
    ),
    ("it sends credentials elsewhere", "credentials_sent", r"\bSEND.*CREDENTIALS | CREDENTIALS.*\|\s*SEND"),
    ("it sends credentials elsewhere", "environment_sent", r"\b(?:env|printenv)\s*\|\s*SEND"),
];

/// A pattern that stands after one of these words forbids what it names.
const NEGATIONS: [&str; 5] = ["not", "never", "don't", "cannot", "refuse"];

static COMPILED: LazyLock<Vec<(ScanMatch, Regex)>> = LazyLock::new(|| {
    let compile = |(description, pattern, text): (&'static str, &'static str, &str)| {
        let text = text.replace(r"\W_", r"\W+(?:\w+\W+){0,3}?");
        let text = PARTS.iter().fold(text, |text, (name, part)| text.replace(name, part));
        // The tests check that every pattern compiles.
        Some((ScanMatch { pattern, description }, Regex::new(&format!("(?mx){text}")).ok()?))
    };
    PATTERNS.into_iter().filter_map(compile).collect()
});

pub(super) fn find(text: &str) -> Option<ScanMatch> {
    let text = plain(text);
    COMPILED.iter().find(|(_, regex)| is_in(regex, &text)).map(|(found, _)| *found)
}

fn is_in(regex: &Regex, text: &str) -> bool {
    regex.find_iter(text).any(|found| {
        let before =
            text[..found.start()].rsplit(|c: char| c.is_whitespace()).filter(|word| !word.is_empty());
        !before.take(2).any(|word| NEGATIONS.contains(&word))
    })
}

/// Returns the text in lower case, with ASCII instead of fullwidth forms, and with a command that goes on
/// after a backslash on one line.
fn plain(text: &str) -> String {
    let ascii = text.replace("\r\n", "\n").replace("\\\n", " ");
    let ascii = ascii.chars().map(|c| match c {
        // Fullwidth forms are in the order of ASCII.
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        _ => c,
    });
    ascii.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(COMPILED.len(), PATTERNS.len());
    }
}
