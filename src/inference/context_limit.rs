//! Recognises that a server rejected a request because it is longer than the model's context.

/// Words by which servers report an exceeded context.
const SIGNS: [&str; 11] = [
    "context size",
    "context length",
    "context window",
    "maximum context",
    "exceed_context_size",
    "n_ctx",
    "too many tokens",
    "maximum model length",
    "prompt is too long",
    "input token count",
    "reduce the length",
];
/// Words before the limit, and the maximum distance of the number from them.
const BEFORE_LIMIT: [&str; 8] = [
    "maximum context length",
    "maximum model length",
    "context length of",
    "context length is",
    "context size",
    "context window",
    "n_ctx",
    "tokens allowed",
];
const MAX_DISTANCE: usize = 16;
/// Minimum context length of models in use; a smaller number means something else.
const MIN_LIMIT: usize = 1_024;

/// Returns whether the server says that the request is too long.
pub(super) fn says_too_long(text: &str) -> bool {
    let lower = text.to_lowercase();
    SIGNS.iter().any(|sign| lower.contains(sign))
}

/// Adds what can be done about it to a message.
pub(super) fn explain(why: &str) -> String {
    format!(
        "{why}; the request is longer than the model's context: lower `agent.context_tokens`, or start the \
         model server with a longer context"
    )
}

/// Returns the limit that the message names.
pub(super) fn limit(why: &str) -> Option<usize> {
    // `16,385` is one number.
    let text: String = why.to_lowercase().chars().filter(|c| *c != ',').collect();
    let after = BEFORE_LIMIT.iter().filter_map(|lead| {
        let rest = &text[text.find(lead)? + lead.len()..];
        let near: String = rest.chars().take(MAX_DISTANCE).collect();
        let digits = near.find(|c: char| c.is_ascii_digit())?;
        first_number(&rest[digits..])
    });
    // "5331 tokens > 5000 maximum".
    let compared = text.split_once('>').and_then(|(_, rest)| first_number(rest.trim_start()));
    after.chain(compared).find(|limit| *limit >= MIN_LIMIT)
}

fn first_number(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_several_makers_are_recognised() {
        for (why, named) in [
            ("the request exceeds the available context size (4096 tokens), try increasing it", Some(4_096)),
            (
                "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens \
                 (8360 in the messages, 640 in the completion)",
                Some(8_192),
            ),
            ("maximum context length is 16,385 tokens, you requested 20,000", Some(16_385)),
            ("The decoder prompt is longer than the maximum model length of 5000", Some(5_000)),
            ("prompt is too long: 5331 tokens > 5000 maximum", Some(5_000)),
            (
                "The input token count (5331) exceeds the maximum number of tokens allowed (5000).",
                Some(5_000),
            ),
            (r#"{"n_prompt_tokens":5331,"n_ctx":5000,"type":"exceed_context_size_error"}"#, Some(5_000)),
            ("Please reduce the length of the messages.", None),
        ] {
            assert!(says_too_long(why), "{why}");
            assert_eq!(limit(why), named, "{why}");
        }
        assert!(!says_too_long("HTTP 400: unknown model"));
    }
}
