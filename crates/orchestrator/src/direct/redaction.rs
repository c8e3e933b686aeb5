//! Redaction of whole JSON documents.

use std::borrow::Cow;

use secrets::redact_by_kind;
use serde_json::Value;

use crate::joined_text;

/// Members that tell a text token by token. Secrets are not found in them, and would be given away by them.
const TOKENS: [&str; 2] = ["logprobs", "token_ids"];

/// Replaces secrets in all texts of a value, at any depth. Adjacent text parts of a message are looked at
/// together: a secret may be split over two of them.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact_by_kind(text) {
                *text = redacted;
            }
        }
        Value::Array(items) => {
            // Before the parts: what is left of a secret beside one that was replaced looks like none.
            redact_across(items);
            items.iter_mut().for_each(redact);
        }
        Value::Object(members) => members.values_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces secrets in what a model wrote: the choices of a completion, or the output of a response. Tokens
/// are left out.
pub(crate) fn redact_answer(document: &mut Value) {
    for field in ["choices", "output", "output_text", "error"] {
        if let Some(written) = document.get_mut(field) {
            drop_all_tokens(written);
            redact(written);
        }
    }
}

/// Empties a member that tells a text token by token; returns whether it changed. An array stays one, since
/// clients expect it.
pub(super) fn drop_tokens(name: &str, member: &mut Value) -> bool {
    if !TOKENS.contains(&name) {
        return false;
    }
    match member {
        Value::Null => false,
        Value::Array(items) => !std::mem::take(items).is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            *member = Value::Null;
            true
        }
    }
}

/// Empties all members of a value that tell a text token by token.
pub(super) fn drop_all_tokens(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_all_tokens),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                drop_tokens(name, member);
                drop_all_tokens(member);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// If a secret reaches from one text part into the next, the first gets the joined and redacted text and the
/// others become empty.
fn redact_across(parts: &mut [Value]) {
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    if texts.len() < 2 {
        return;
    }
    let Some(joined) = joined_text::across(&texts) else { return };
    let mut rest = Some(joined);
    for part in parts.iter_mut() {
        if let Some(text) = part.get_mut("text").filter(|text| text.is_string()) {
            *text = rest.take().unwrap_or_default().into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

    #[test]
    fn secrets_are_replaced_at_any_depth_and_across_parts() {
        let mut request = json!([
            { "role": "user", "content": format!("use sk-{BODY}") },
            { "role": "user", "content": [
                { "type": "text", "text": "use sk-Q7rT2" },
                { "type": "text", "text": "mZx9LkW4vNc8BdY5hJp3" },
            ]},
            { "role": "assistant", "tool_calls": [
                { "function": { "arguments": format!("{{\"a\":\"ghp_{BODY}\"}}") } },
            ] },
        ]);
        redact(&mut request);
        let text = request.to_string();
        assert!(!text.contains("Q7rT2") && !text.contains("mZx9"), "{text}");
        assert_eq!(request[1]["content"][0]["text"], "use [redacted:model_key]");
        assert_eq!(request[1]["content"][1]["text"], "");
    }

    /// A part may look like a secret alone, and what is left of it in the next part like none.
    #[test]
    fn secrets_are_replaced_wherever_parts_are_cut() {
        let secret = format!("sk-{BODY}");
        for cut in 1..secret.len() {
            let (first, second) = secret.split_at(cut);
            let parts = [format!("use {first}"), format!("{second} now")];
            let mut request = json!([{ "type": "text", "text": parts[0] }, { "text": parts[1] }]);
            redact(&mut request);
            assert_eq!(request[0]["text"], "use [redacted:model_key] now", "{cut}");
            assert_eq!(request[1]["text"], "", "{cut}");
        }
        // A model server may put a line break between them.
        let mut request = json!([{ "text": "Password" }, { "image": 1 }, { "text": "hunter2" }]);
        redact(&mut request);
        let expected = json!([{ "text": "Password\n[redacted:secret]" }, { "image": 1 }, { "text": "" }]);
        assert_eq!(request, expected);
    }

    #[test]
    fn answers_have_no_tokens() {
        let token = json!({ "token": "sk-Q", "bytes": [115, 107], "logprob": -0.1, "top_logprobs": [] });
        let mut answer = json!({
            "choices": [{ "message": { "content": "Hi", "token_ids": [1, 2] }, "token_ids": null,
                          "logprobs": { "content": [token] } }],
            "output": [{ "content": [{ "text": "Hi", "logprobs": [token] }] }], "top_logprobs": 1,
        });
        redact_answer(&mut answer);
        let expected = json!({
            "choices": [{ "message": { "content": "Hi", "token_ids": [] }, "token_ids": null,
                          "logprobs": null }],
            "output": [{ "content": [{ "text": "Hi", "logprobs": [] }] }], "top_logprobs": 1,
        });
        assert_eq!(answer, expected);
    }

    #[test]
    fn ordinary_requests_are_not_changed() {
        let request =
            json!([{ "role": "user", "content": [{ "text": "a" }, { "text": "b" }], "n": 1, "x": null }]);
        let mut same = request.clone();
        redact(&mut same);
        assert_eq!(same, request);
    }
}
