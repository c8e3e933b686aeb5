use std::collections::BTreeSet;

use super::Found;

/// A secret of a known shape: how it begins, and how many characters follow at least.
struct Shape {
    name: &'static str,
    beginning: &'static str,
    least: usize,
}

const SHAPES: [Shape; 20] = [
    Shape { name: "aws_key", beginning: "AKIA", least: 16 },
    Shape { name: "aws_key", beginning: "ASIA", least: 16 },
    Shape { name: "github_token", beginning: "ghp_", least: 36 },
    Shape { name: "github_token", beginning: "gho_", least: 36 },
    Shape { name: "github_token", beginning: "ghu_", least: 36 },
    Shape { name: "github_token", beginning: "ghs_", least: 36 },
    Shape { name: "github_token", beginning: "ghr_", least: 36 },
    Shape { name: "github_token", beginning: "github_pat_", least: 22 },
    Shape { name: "gitlab_token", beginning: "glpat-", least: 20 },
    Shape { name: "slack_token", beginning: "xoxb-", least: 20 },
    Shape { name: "slack_token", beginning: "xoxp-", least: 20 },
    Shape { name: "slack_token", beginning: "xoxa-", least: 20 },
    Shape { name: "model_key", beginning: "sk-ant-", least: 20 },
    Shape { name: "model_key", beginning: "sk-proj-", least: 20 },
    Shape { name: "model_key", beginning: "sk-", least: 40 },
    Shape { name: "model_key", beginning: "hf_", least: 30 },
    Shape { name: "google_key", beginning: "AIza", least: 35 },
    Shape { name: "npm_token", beginning: "npm_", least: 36 },
    Shape { name: "mail_key", beginning: "SG.", least: 40 },
    Shape { name: "stripe_key", beginning: "sk_live_", least: 20 },
];

const WHAT: &str = "it holds a secret";

pub(super) fn find(text: &str) -> Option<Found> {
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
        return Some(Found { pattern: "private_key", what: WHAT });
    }
    let is_between = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    text.split(is_between).find_map(|word| {
        let word = word.trim_end_matches('.');
        let pattern = shape(word)
            .or_else(|| is_web_token(word).then_some("web_token"))
            .or_else(|| is_seed(word).then_some("nkey_seed"))?;
        Some(Found { pattern, what: WHAT })
    })
}

fn shape(word: &str) -> Option<&'static str> {
    let is_it = |shape: &&Shape| {
        word.strip_prefix(shape.beginning).is_some_and(|rest| rest.len() >= shape.least && is_random(rest))
    };
    SHAPES.iter().find(is_it).map(|shape| shape.name)
}

/// Three parts, of which the first two are JSON in base64.
fn is_web_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    matches!(parts[..], [head, body, signature]
        if head.starts_with("eyJ") && body.starts_with("eyJ") && signature.len() >= 20 && is_random(signature))
}

/// A seed of the keys that this system signs with.
fn is_seed(word: &str) -> bool {
    let kinds = ["SU", "SA", "SO", "SN", "SC", "SX"];
    word.len() == 58
        && kinds.iter().any(|kind| word.starts_with(kind))
        && word.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'))
        && is_random(word)
}

/// Not `xxxx…`, and not an example that says so.
fn is_random(text: &str) -> bool {
    const DIFFERENT: usize = 8;
    let different: BTreeSet<u8> = text.bytes().collect();
    different.len() >= DIFFERENT && !text.to_ascii_uppercase().contains("EXAMPLE")
}
