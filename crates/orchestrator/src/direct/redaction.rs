//! Redaction of whole JSON documents.

use std::borrow::Cow;

use secrets::redact_by_kind;
use serde_json::Value;

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
            items.iter_mut().for_each(redact);
            redact_across(items);
        }
        Value::Object(members) => members.values_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces secrets in what a model wrote: the choices of a completion, or the output of a response.
pub(crate) fn redact_answer(document: &mut Value) {
    for field in ["choices", "output", "output_text", "error"] {
        if let Some(written) = document.get_mut(field) {
            redact(written);
        }
    }
}

/// If the text parts hold a secret only when they are joined, the first gets the joined and redacted text and
/// the others become empty.
fn redact_across(parts: &mut [Value]) {
    let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    let joined: String = parts.iter().filter_map(text).collect();
    if parts.iter().filter(|part| part.get("text").is_some()).count() < 2 {
        return;
    }
    if let Cow::Owned(redacted) = redact_by_kind(&joined)
        && redacted != joined
    {
        let mut rest = Some(redacted);
        for part in parts.iter_mut() {
            if let Some(text) = part.get_mut("text") {
                *text = rest.take().unwrap_or_default().into();
            }
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

    #[test]
    fn ordinary_requests_are_not_changed() {
        let request =
            json!([{ "role": "user", "content": [{ "text": "a" }, { "text": "b" }], "n": 1, "x": null }]);
        let mut same = request.clone();
        redact(&mut same);
        assert_eq!(same, request);
    }
}
