//! Redaction of whole JSON documents.

use std::borrow::Cow;

use secrets::redact_by_kind;
use serde_json::{Map, Value};

use super::base64::redact_string;
use crate::joined_text;

/// Members that tell a text token by token. Secrets are not found in them, and would be given away by them.
const TOKENS: [&str; 6] =
    ["__verbose", "completion_probabilities", "logprobs", "prompt_logprobs", "prompt_token_ids", "token_ids"];
/// Replaces a secret of which only its place is known.
pub(super) const SECRET: &str = "[redacted:secret]";

/// Replaces secrets in all texts of a value, at any depth. Adjacent text parts of a message are looked at
/// together: a secret may be split over two of them.
pub(crate) fn redact(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(redacted) = redact_string(text) {
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

/// Replaces secrets in a request. In what was said, also those that only the name of a member gives away; the
/// schema of a tool may have such members, too.
pub(super) fn redact_request(request: &mut Map<String, Value>) {
    for (name, member) in request {
        if matches!(name.as_str(), "messages" | "input") {
            redact_named(member);
        }
        redact(member);
    }
}

/// Replaces secrets in all that a model server answers. Tokens are left out. The numbers of `usage` stay.
pub(crate) fn redact_answer(document: &mut Value) {
    drop_all_tokens(document);
    let usage = document.get_mut("usage").map(Value::take);
    redact_whole(document);
    if let Some(mut usage) = usage {
        redact(&mut usage);
        document["usage"] = usage;
    }
}

/// Replaces secrets in a value that arrives as a whole, also where only the name of a member gives them away.
pub(super) fn redact_whole(value: &mut Value) {
    redact_named(value);
    redact(value);
}

/// Replaces the values of members with the name of a secret, such as `{"password": "hunter2"}`, and names
/// that are secrets.
pub(super) fn redact_named(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact_named),
        Value::Object(members) => {
            rename_secrets(members);
            let is_name =
                |name: &str| members.get(name).and_then(Value::as_str).is_some_and(secrets::is_name);
            let is_pair = is_name("name") || is_name("key");
            for (name, member) in members.iter_mut() {
                let is_secret = secrets::is_name(name) || (is_pair && name == "value");
                if is_secret { redact_value(member) } else { redact_named(member) }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces the value of a named secret, unless it is replaced already.
fn redact_value(value: &mut Value) {
    match value {
        Value::String(text) if text.is_empty() || (text.starts_with("[redacted:") && text.ends_with(']')) => {
        }
        Value::String(_) | Value::Number(_) => *value = SECRET.into(),
        Value::Array(items) => items.iter_mut().for_each(redact_value),
        Value::Object(_) => redact_named(value),
        Value::Null | Value::Bool(_) => {}
    }
}

fn rename_secrets(members: &mut Map<String, Value>) {
    let is_secret = |name: &&String| matches!(redact_by_kind(name), Cow::Owned(_));
    let found: Vec<String> = members.keys().filter(is_secret).cloned().collect();
    for name in found {
        if let Some(member) = members.remove(&name) {
            members.insert(redact_by_kind(&name).into_owned(), member);
        }
    }
}

/// Empties a member that tells a text token by token. An array stays one, since clients expect it.
pub(super) fn drop_tokens(name: &str, member: &mut Value) {
    if !TOKENS.contains(&name) {
        return;
    }
    match member {
        Value::Array(items) => items.clear(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            *member = Value::Null;
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

    /// G11: in members of any name, those of vendors, and those that repeat the request.
    #[test]
    fn every_string_of_an_answer_is_redacted() {
        let secret = format!("sk-{BODY}");
        let mut answer = json!({
            "id": "chatcmpl-1", "model": "m", "system_fingerprint": secret, "reasoning": secret,
            "citations": [format!("https://docs.example/?token={BODY}")], "output": [],
            "instructions": secret, "metadata": { "note": secret },
            "incomplete_details": { "reason": secret },
            "prompt_logprobs": [{ "1": { "decoded_token": "sk-" } }], "__verbose": { "content": "sk-" },
            "usage": { "cost_per_token": 2 },
        });
        redact_answer(&mut answer);
        let text = answer.to_string();
        assert!(!text.contains(BODY) && !text.contains("sk-"), "{text}");
        assert_eq!((&answer["id"], &answer["usage"]["cost_per_token"]), (&json!("chatcmpl-1"), &json!(2)));
    }

    /// G11
    #[test]
    fn values_that_only_their_names_give_away_are_replaced() {
        let mut answer = json!({ "choices": [{ "message": { "tool_calls": [{ "function": {
            "name": "get_token",
            "arguments": { "password": "hunter2", "db_secret": ["a", 7], "token": null, "user": "bob",
                           "env": [{ "name": "API_TOKEN", "value": "hunter2" }],
                           (format!("sk-{BODY}")): 1 },
        } }] } }] });
        redact_answer(&mut answer);
        let call = &answer["choices"][0]["message"]["tool_calls"][0]["function"];
        let expected = json!({
            "password": SECRET, "db_secret": [SECRET, SECRET], "token": null, "user": "bob",
            "env": [{ "name": "API_TOKEN", "value": SECRET }], "[redacted:model_key]": 1,
        });
        assert_eq!((&call["name"], &call["arguments"]), (&json!("get_token"), &expected));
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
