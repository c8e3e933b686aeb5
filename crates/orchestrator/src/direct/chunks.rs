//! The chunks of a streamed chat completion.

use std::{collections::BTreeMap, sync::Arc};

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};
use sse_stream::Sse;

use super::{
    choice_texts::ChoiceTexts,
    stream::{DONE, Relay},
};
use crate::{error::ApiError, metrics::Metrics};

/// The members of a chunk that are the same in all chunks of a completion.
const HEAD: [&str; 6] = ["id", "object", "created", "model", "service_tier", "system_fingerprint"];

/// Passes on the chunks of one answer.
#[derive(Default)]
pub(super) struct Chunks {
    wants_usage: bool,
    /// What the first chunk with a choice has of [`HEAD`].
    head: Option<Map<String, Value>>,
    /// The texts of each choice, by its index.
    choices: BTreeMap<u64, ChoiceTexts>,
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
        let mut out = BytesMut::new();
        for (index, mut texts) in std::mem::take(&mut self.choices) {
            self.write_rest(&mut out, index, texts.drain());
        }
        out.extend_from_slice(&event(DONE));
        out.freeze()
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
        if let Some(error) = chunk.get_mut("error").filter(|error| !error.is_null()) {
            self.is_complete = true;
            // What is held back may be the beginning of a secret, and nothing follows it.
            self.choices.clear();
            super::redaction::redact(error);
            return event(&chunk.to_string());
        }
        self.metrics.count_direct_usage(chunk.get("usage"));
        let has_choices = chunk.get("choices").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
        if !has_choices && !self.wants_usage && chunk.get("usage").is_some_and(|usage| !usage.is_null()) {
            return Bytes::new();
        }
        if has_choices && self.head.is_none() {
            self.head = Some(head_of(&chunk));
        }
        let mut out = BytesMut::new();
        let mut is_changed = false;
        let choices = chunk.get_mut("choices").and_then(Value::as_array_mut);
        for choice in choices.into_iter().flatten().filter_map(Value::as_object_mut) {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
            let is_last = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
            self.is_complete |= is_last;
            let passed = self.choices.entry(index).or_default().pass(choice, is_last);
            is_changed |= passed.is_changed;
            self.write_rest(&mut out, index, passed.before);
        }
        if !is_changed && out.is_empty() {
            return event(data);
        }
        let passed = if is_changed { event(&chunk.to_string()) } else { event(data) };
        out.extend_from_slice(&passed);
        out.freeze()
    }

    /// Writes what was held back of a choice, each text as a chunk of its own.
    fn write_rest(&self, out: &mut BytesMut, index: u64, rest: Vec<Map<String, Value>>) {
        for members in rest {
            let mut choice = Map::new();
            choice.insert("index".to_owned(), index.into());
            choice.insert("delta".to_owned(), Value::Object(Map::new()));
            choice.insert("finish_reason".to_owned(), Value::Null);
            choice.extend(members);
            let mut chunk = self.head.clone().unwrap_or_default();
            chunk.insert("choices".to_owned(), Value::Array(vec![Value::Object(choice)]));
            out.extend_from_slice(&event(&Value::Object(chunk).to_string()));
        }
    }
}

fn head_of(chunk: &Value) -> Map<String, Value> {
    HEAD.iter().filter_map(|name| Some(((*name).to_owned(), chunk.get(*name)?.clone()))).collect()
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

    /// The rest of each text comes before the chunk with the reason, which some clients take for the end.
    #[test]
    fn what_was_held_back_is_sent_before_the_choice_ends() {
        let mut relay = Chunks::default();
        let first = json!({ "id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
                            "choices": [{ "index": 1, "delta": { "content": "Use sk-" } }] });
        relay.pass_data(&first.to_string());
        let end = r#"{"id":"c-1","choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
        let out = String::from_utf8(relay.pass_data(end).to_vec()).unwrap();
        let (rest, last) = out.split_once("\n\n").unwrap();
        let rest: Value = serde_json::from_str(rest.strip_prefix("data: ").unwrap()).unwrap();
        let choice = json!({ "index": 1, "delta": { "content": "sk-" }, "finish_reason": null });
        let expected = json!({ "id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
                               "choices": [choice] });
        assert_eq!(rest, expected);
        assert_eq!(last, format!("data: {end}\n\n"));
    }

    #[test]
    fn what_was_held_back_of_a_choice_without_a_reason_is_sent_at_the_end() {
        let mut relay = Chunks::default();
        relay.pass_data(r#"{"choices":[{"index":1,"delta":{"reasoning":"see sk-"}}]}"#);
        relay.pass_data(&delta("Done", Some("stop")));
        let out = String::from_utf8(relay.end().to_vec()).unwrap();
        assert!(out.contains(r#""reasoning":"sk-""#) && out.ends_with("data: [DONE]\n\n"), "{out}");
        assert_eq!(relay.end(), event(DONE));
    }

    #[test]
    fn what_was_held_back_is_not_sent_after_an_error() {
        let mut relay = Chunks::default();
        relay.pass_data(&delta("Use sk-Q7r", None));
        relay.pass_data(r#"{"error":{"message":"out of memory"}}"#);
        assert_eq!(relay.end(), event(DONE));
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
