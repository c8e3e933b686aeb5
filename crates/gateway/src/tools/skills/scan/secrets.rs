//! Finds secrets of known shapes: API keys, tokens, private keys.

use std::collections::BTreeSet;

use super::ScanMatch;

/// A known kind of secret: its prefix, and how many bytes must follow at least.
struct Shape {
    name: &'static str,
    prefix: &'static str,
    min_len: usize,
}

const SHAPES: [Shape; 20] = [
    Shape { name: "aws_key", prefix: "AKIA", min_len: 16 },
    Shape { name: "aws_key", prefix: "ASIA", min_len: 16 },
    Shape { name: "github_token", prefix: "ghp_", min_len: 36 },
    Shape { name: "github_token", prefix: "gho_", min_len: 36 },
    Shape { name: "github_token", prefix: "ghu_", min_len: 36 },
    Shape { name: "github_token", prefix: "ghs_", min_len: 36 },
    Shape { name: "github_token", prefix: "ghr_", min_len: 36 },
    Shape { name: "github_token", prefix: "github_pat_", min_len: 22 },
    Shape { name: "gitlab_token", prefix: "glpat-", min_len: 20 },
    Shape { name: "slack_token", prefix: "xoxb-", min_len: 20 },
    Shape { name: "slack_token", prefix: "xoxp-", min_len: 20 },
    Shape { name: "slack_token", prefix: "xoxa-", min_len: 20 },
    Shape { name: "model_key", prefix: "sk-ant-", min_len: 20 },
    Shape { name: "model_key", prefix: "sk-proj-", min_len: 20 },
    Shape { name: "model_key", prefix: "sk-", min_len: 40 },
    Shape { name: "model_key", prefix: "hf_", min_len: 30 },
    Shape { name: "google_key", prefix: "AIza", min_len: 35 },
    Shape { name: "npm_token", prefix: "npm_", min_len: 36 },
    Shape { name: "mail_key", prefix: "SG.", min_len: 40 },
    Shape { name: "stripe_key", prefix: "sk_live_", min_len: 20 },
];

const DESCRIPTION: &str = "it contains a secret";

pub(super) fn find(text: &str) -> Option<ScanMatch> {
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
        return Some(ScanMatch { pattern: "private_key", description: DESCRIPTION });
    }
    let is_delimiter = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    text.split(is_delimiter).find_map(|word| {
        let word = word.trim_end_matches('.');
        let pattern = known_shape(word)
            .or_else(|| is_web_token(word).then_some("web_token"))
            .or_else(|| is_nkey_seed(word).then_some("nkey_seed"))?;
        Some(ScanMatch { pattern, description: DESCRIPTION })
    })
}

/// Returns the name of the known kind of secret that a word is.
fn known_shape(word: &str) -> Option<&'static str> {
    let matches = |shape: &&Shape| {
        word.strip_prefix(shape.prefix).is_some_and(|rest| rest.len() >= shape.min_len && is_random(rest))
    };
    SHAPES.iter().find(matches).map(|shape| shape.name)
}

/// Returns whether a word is a JSON web token: three parts, of which the first two are JSON in base64.
fn is_web_token(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    matches!(parts[..], [head, body, signature] if head.starts_with("eyJ")
        && body.starts_with("eyJ") && signature.len() >= 20 && is_random(signature))
}

/// Returns whether a word is the seed of an nkey, which NATS uses to sign.
fn is_nkey_seed(word: &str) -> bool {
    let kinds = ["SU", "SA", "SO", "SN", "SC", "SX"];
    word.len() == 58
        && kinds.iter().any(|kind| word.starts_with(kind))
        && word.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'))
        && is_random(word)
}

/// Returns whether a text looks random: not `xxxx…`, and not marked as an example.
fn is_random(text: &str) -> bool {
    const MIN_DISTINCT_BYTES: usize = 8;
    let distinct: BTreeSet<u8> = text.bytes().collect();
    distinct.len() >= MIN_DISTINCT_BYTES && !text.to_ascii_uppercase().contains("EXAMPLE")
}
