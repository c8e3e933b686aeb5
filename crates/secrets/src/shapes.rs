//! The shapes of secrets that differ from other text: those with a known prefix, and private keys.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::Regex;

/// The name of each kind of secret, and its pattern. A part of a secret is enough to match, since texts may
/// be truncated.
pub(crate) const SHAPES: [(&str, &str); 21] = [
    ("nkey_seed", r"S[ACNOUX][A-Z2-7]{20,}"),
    // Those of NATS among them.
    ("web_token", r"eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){0,2}"),
    ("gateway_token", r"cyn_[A-Za-z0-9_-]{10,}"),
    // Providers of models.
    ("model_key", r"sk-[A-Za-z0-9_-]{12,}"),
    ("model_key", r"xai-[A-Za-z0-9_-]{10,}"),
    ("model_key", r"gsk_[A-Za-z0-9]{10,}"),
    ("model_key", r"hf_[A-Za-z0-9]{10,}"),
    ("model_key", r"r8_[A-Za-z0-9]{10,}"),
    ("google_key", r"AIza[A-Za-z0-9_-]{10,}"),
    ("google_key", r"ya29\.[A-Za-z0-9_-]{16,}"),
    // Clouds, forges and others.
    ("aws_key", r"(?:AKIA|ASIA)[A-Z0-9]{8,}"),
    ("github_token", r"gh[a-z]_[A-Za-z0-9]{10,}"),
    ("github_token", r"github_pat_[A-Za-z0-9_]{16,}"),
    ("gitlab_token", r"glpat-[A-Za-z0-9_-]{12,}"),
    ("npm_token", r"npm_[A-Za-z0-9]{10,}"),
    ("slack_token", r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{8,}"),
    ("slack_webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/-]{8,}"),
    ("telegram_token", r"(?:bot)?[0-9]{6,12}:AA[A-Za-z0-9_-]{20,}"),
    ("stripe_key", r"[spr]k_(?:live|test)_[A-Za-z0-9]{8,}"),
    ("mail_key", r"SG\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    ("age_key", r"AGE-SECRET-KEY-1[A-Z0-9]{20,}"),
];

static COMPILED: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    // The tests check that every pattern compiles.
    let compile = |(name, shape)| Some((name, Regex::new(&format!(r"(?-u:\b)(?:{shape})")).ok()?));
    SHAPES.into_iter().filter_map(compile).collect()
});

/// Returns the kind of a secret that the text contains. Stricter than [`redact`](crate::redact()), which may
/// replace too much: placeholders and texts that only begin like a secret do not count.
pub fn find(text: &str) -> Option<&'static str> {
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY-----") {
        return Some("private_key");
    }
    let found = COMPILED.iter().find(|(_, shape)| shape.find_iter(text).any(|word| is_random(word.as_str())));
    found.map(|(name, _)| *name)
}

/// Returns whether a text looks random: not short, not `xxxx…`, and not marked as an example. Of an address,
/// the last part decides.
fn is_random(text: &str) -> bool {
    const MIN_BYTES: usize = 20;
    const MIN_DISTINCT_BYTES: usize = 10;
    let text = text.rsplit(['/', ':']).next().unwrap_or(text);
    let distinct: BTreeSet<u8> = text.bytes().collect();
    text.len() >= MIN_BYTES
        && distinct.len() >= MIN_DISTINCT_BYTES
        && text.bytes().any(|byte| byte.is_ascii_digit())
        && !text.to_ascii_uppercase().contains("EXAMPLE")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Secrets are assembled at run time, so that no scanner takes this file for a leak.
    #[test]
    fn each_kind_is_found() {
        let key = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8S9t0";
        for (kind, text) in [
            ("aws_key", format!("use AKIA{} here", "Q3EGXZB4DN7WRT2M")),
            ("github_token", format!("token: ghp_{}", &key[..36])),
            ("gitlab_token", format!("glpat-{}", &key[..20])),
            ("slack_token", format!("`xoxb-{}`", &key[..24])),
            ("slack_webhook", format!("https://hooks.slack.com/services/T01ABCDEF/B02ABCDEF/{}", &key[..24])),
            ("telegram_token", format!("https://api.telegram.org/bot123456789:AA{}/getMe", &key[..33])),
            ("model_key", format!("sk-ant-{}", &key[..30])),
            ("google_key", format!("AIza{}", &key[..35])),
            ("web_token", format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{}", &key[..30])),
            ("nkey_seed", format!("SU{}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".repeat(2).get(..56).unwrap())),
            ("private_key", format!("-----BEGIN {} PRIVATE KEY-----", "OPENSSH")),
        ] {
            assert_eq!(find(&text), Some(kind), "{text:?}");
        }
    }

    #[test]
    fn placeholders_and_names_are_not_secrets() {
        for text in [
            "A key looks like AKIAIOSFODNN7EXAMPLE or ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.",
            "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
            "task-sk-1 and sk-learn-contrib-extras are names.",
            "curl -H \"Authorization: Bearer $API_TOKEN\" https://api.example",
        ] {
            assert_eq!(find(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(COMPILED.len(), SHAPES.len());
    }
}
