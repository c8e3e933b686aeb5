//! The chunks of a streamed chat completion.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use secrets::StreamRedactor;
use serde_json::Value;
use sse_stream::Sse;

use super::stream::{DONE, Relay};
use crate::{error::ApiError, metrics::Metrics};

/// The texts of a delta that are streamed in pieces.
const TEXTS: [&str; 3] = ["content", "reasoning_content", "refusal"];

/// Passes on the chunks of one answer.
#[derive(Default)]
pub(super) struct Chunks {
    wants_usage: bool,
    /// One for each text that is streamed, by its place in the answer.
    redactors: BTreeMap<String, StreamRedactor>,
    /// Whether a choice has ended, or the server reported an error.
    is_complete: bool,
    metrics: Arc<Metrics>,
}

impl Relay for Chunks {
    fn pass(&mut self, event: &Sse) -> Bytes {
        self.pass_data(event.data.as_deref().unwrap_or_default())
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn end(&mut self) -> Bytes {
        event(DONE)
    }

    fn fail(&mut self, error: &ApiError) -> Bytes {
        event(&String::from_utf8_lossy(&error.to_json()))
    }
}

impl Chunks {
    pub(super) fn new(wants_usage: bool, metrics: Arc<Metrics>) -> Self {
        Self { wants_usage, metrics, ..Self::default() }
    }

    fn pass_data(&mut self, data: &str) -> Bytes {
        let Ok(mut chunk) = serde_json::from_str::<Value>(data) else {
            // Nothing that a client could read. Most likely it was cut off.
            return Bytes::new();
        };
        if let Some(error) = chunk.get_mut("error") {
            self.is_complete = true;
            super::redaction::redact(error);
            return event(&chunk.to_string());
        }
        self.metrics.count_direct_usage(chunk.get("usage"));
        let has_choices = chunk.get("choices").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
        if !has_choices && !self.wants_usage && chunk.get("usage").is_some_and(|usage| !usage.is_null()) {
            return Bytes::new();
        }
        let choices = chunk.get_mut("choices").and_then(Value::as_array_mut);
        let mut is_changed = false;
        for choice in choices.into_iter().flatten() {
            is_changed |= self.redact_choice(choice);
        }
        if is_changed { event(&chunk.to_string()) } else { event(data) }
    }

    /// Replaces secrets in a choice; returns whether it changed.
    fn redact_choice(&mut self, choice: &mut Value) -> bool {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
        let is_last = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
        self.is_complete |= is_last;
        let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) else { return false };
        let mut is_changed = false;
        for field in TEXTS {
            let place = format!("{index}/{field}");
            let given = delta.get(field).and_then(Value::as_str);
            if given.is_none() && !(is_last && self.redactors.contains_key(&place)) {
                continue;
            }
            let passed = self.redact_text(place, given.unwrap_or_default(), is_last);
            if given != Some(&passed) && !(given.is_none() && passed.is_empty()) {
                delta.insert(field.to_owned(), passed.into());
                is_changed = true;
            }
        }
        let calls = delta.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let place =
                format!("{index}/call/{}", call.get("index").and_then(Value::as_u64).unwrap_or_default());
            let Some(Value::String(given)) = call.pointer_mut("/function/arguments") else { continue };
            // Arguments are JSON, which a client puts together itself, so each piece is looked at on its own
            // and with what came before it.
            let passed = self.redact_text(place, given, is_last);
            is_changed |= *given != passed;
            *given = passed;
        }
        is_changed
    }

    fn redact_text(&mut self, place: String, piece: &str, is_last: bool) -> String {
        let redactor = self.redactors.entry(place).or_default();
        let mut passed = redactor.push(piece);
        if is_last {
            passed.push_str(&redactor.finish());
        }
        passed
    }
}

fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

    fn delta(content: &str, finish: Option<&str>) -> String {
        json!({ "choices": [{ "index": 0, "delta": { "content": content }, "finish_reason": finish }] })
            .to_string()
    }

    fn text(events: &[Bytes]) -> String {
        let all = events.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect::<String>();
        let chunks = all.split("data: ").filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
        chunks.filter_map(|it| Some(it["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect()
    }

    #[test]
    fn ordinary_chunks_are_passed_on_byte_for_byte() {
        let mut relay = Chunks::default();
        let chunk = r#"{"choices":[{"delta":{"content":"Hello","x":1},"index":0}],  "odd":true}"#;
        assert_eq!(relay.pass_data(chunk), event(chunk));
    }

    #[test]
    fn secret_that_is_split_over_chunks_is_replaced() {
        let mut relay = Chunks::default();
        let pieces = ["The key is sk-", &BODY[..9], &BODY[9..20], &BODY[20..], "."];
        let mut events: Vec<Bytes> =
            pieces.iter().map(|piece| relay.pass_data(&delta(piece, None))).collect();
        events.push(relay.pass_data(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#));
        events.push(relay.end());
        let all: Vec<u8> = events.concat();
        let all = String::from_utf8(all).unwrap();
        assert!(!all.contains(&BODY[..9]) && !all.contains(&BODY[20..]), "{all}");
        assert_eq!(text(&events), "The key is [redacted:model_key].");
        assert!(all.ends_with("data: [DONE]\n\n"), "{all}");
    }

    #[test]
    fn usage_that_the_client_did_not_ask_for_is_counted_and_left_out() {
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        assert_eq!(Chunks::default().pass_data(usage), Bytes::new());
        let mut relay = Chunks { wants_usage: true, ..Chunks::default() };
        assert_eq!(relay.pass_data(usage), event(usage));
    }

    #[test]
    fn stream_that_breaks_off_is_not_complete() {
        let mut relay = Chunks::default();
        relay.pass_data(&delta("Hel", None));
        assert!(!relay.is_complete());
        let error = ApiError::new(http::StatusCode::BAD_GATEWAY, "model_server_error", "It broke off.");
        let end = String::from_utf8(relay.fail(&error).to_vec()).unwrap();
        assert!(end.contains("\"error\"") && end.contains("broke off"), "{end}");
    }
}
