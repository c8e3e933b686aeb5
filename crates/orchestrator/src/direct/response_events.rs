//! The events of a streamed response (`/v1/responses`).
//!
//! Text arrives in deltas, and once more as a whole in the events that end a part, an item and the response.
//! The end of a delta that may begin a secret is held back; what is left of it is sent as a delta of its own
//! before the event that ends the text, so the events after it are numbered anew. A delta is a text, or an
//! object with texts in it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use secrets::StreamRedactor;
use serde_json::Value;
use sse_stream::Sse;

use super::{
    redaction::{drop_all_tokens, drop_tokens, redact, redact_answer},
    stream::Relay,
};
use crate::{
    error::{ApiError, ERROR_EVENT},
    metrics::Metrics,
};

/// Passes on the events of one response.
#[derive(Default)]
pub(super) struct ResponseEvents {
    /// One for each text that is streamed, by its place in the response.
    texts: BTreeMap<String, StreamedText>,
    /// How many events were sent that the server did not send.
    added: u64,
    next_number: u64,
    is_complete: bool,
    metrics: Arc<Metrics>,
}

struct StreamedText {
    redactor: StreamRedactor,
    /// The last delta, with empty texts.
    last: Value,
    /// Where the text is in its events.
    pointer: String,
    name: Option<String>,
}

impl Relay for ResponseEvents {
    fn pass(&mut self, event: &Sse) -> Bytes {
        let data = event.data.as_deref().unwrap_or_default();
        let Ok(mut value) = serde_json::from_str::<Value>(data) else {
            // Nothing that a client could read. Most likely it was cut off.
            return Bytes::new();
        };
        let kind = value.get("type").and_then(Value::as_str).or(event.event.as_deref());
        let kind = kind.unwrap_or_default().to_owned();
        let mut out = String::new();
        let before = value.clone();
        let is_delta = kind.ends_with(".delta");
        redact_event(&mut value, is_delta);
        if is_delta {
            self.redact_delta(&kind, &mut value, event.event.as_deref());
        } else {
            self.end_texts(&kind, &value, &mut out);
        }
        self.note_end(&kind, &value);
        self.number(&mut value);
        if before == value {
            write_event(&mut out, event.event.as_deref(), data);
        } else {
            write_event(&mut out, event.event.as_deref(), &value.to_string());
        }
        Bytes::from(out)
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn end(&mut self) -> Bytes {
        Bytes::new()
    }

    fn fail(&mut self, error: &ApiError) -> Bytes {
        let mut out = String::new();
        let data = error.to_event_json(self.next_number);
        write_event(&mut out, Some(ERROR_EVENT), &String::from_utf8_lossy(&data));
        Bytes::from(out)
    }
}

impl ResponseEvents {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..Self::default() }
    }

    /// Replaces secrets in the texts of a delta, whose other members are redacted.
    fn redact_delta(&mut self, kind: &str, value: &mut Value, name: Option<&str>) {
        let mut pointers = Vec::new();
        if let Some(delta) = value.get("delta") {
            find_texts(delta, "/delta".to_owned(), &mut pointers);
        }
        let mut last = value.clone();
        for pointer in &pointers {
            if let Some(text) = last.pointer_mut(pointer) {
                *text = "".into();
            }
        }
        let place = place(kind, value);
        for pointer in pointers {
            let Some(Value::String(delta)) = value.pointer_mut(&pointer) else { continue };
            let text = self.texts.entry(format!("{place}{pointer}")).or_insert_with(|| StreamedText {
                redactor: StreamRedactor::default(),
                last: Value::Null,
                pointer,
                name: name.map(str::to_owned),
            });
            *delta = text.redactor.push(delta);
            text.last.clone_from(&last);
        }
    }

    /// Sends what was held back of the texts that an event ends: those of its item, or all.
    fn end_texts(&mut self, kind: &str, value: &Value, out: &mut String) {
        if !kind.ends_with(".done") && !is_last(kind) {
            return;
        }
        let ended = |text: &StreamedText| match value.get("output_index") {
            Some(index) => text.last.get("output_index") == Some(index),
            None => true,
        };
        let number = value.get("sequence_number").and_then(Value::as_u64);
        for text in self.texts.extract_if(.., |_, text| ended(text)).map(|(_, text)| text) {
            let StreamedText { mut redactor, mut last, pointer, name } = text;
            let left = redactor.finish();
            if left.is_empty() {
                continue;
            }
            if let Some(text) = last.pointer_mut(&pointer) {
                *text = left.into();
            }
            if let Some(number) = number {
                last["sequence_number"] = (number + self.added).into();
            }
            self.added += 1;
            write_event(out, name.as_deref(), &last.to_string());
        }
    }

    /// Counts the usage of the last event.
    fn note_end(&mut self, kind: &str, value: &Value) {
        if kind == ERROR_EVENT || is_last(kind) || value.get("error").is_some_and(|error| !error.is_null()) {
            self.is_complete = true;
            self.metrics.count_direct_usage(value.pointer("/response/usage"));
        }
    }

    fn number(&mut self, value: &mut Value) {
        let Some(number) = value.get("sequence_number").and_then(Value::as_u64) else { return };
        let number = number + self.added;
        self.next_number = number + 1;
        if self.added > 0 {
            value["sequence_number"] = number.into();
        }
    }
}

fn is_last(kind: &str) -> bool {
    matches!(kind, "response.completed" | "response.failed" | "response.incomplete" | "response.cancelled")
}

/// Names the text that a delta belongs to.
fn place(kind: &str, value: &Value) -> String {
    let part = |field: &str| value.get(field).unwrap_or(&Value::Null).to_string();
    let parts = ["output_index", "item_id", "content_index", "summary_index"].map(part);
    format!("{kind}/{}", parts.join("/"))
}

/// Finds the texts of a delta, as JSON pointers. A `type` is none.
fn find_texts(value: &Value, pointer: String, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(pointer),
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                find_texts(item, format!("{pointer}/{place}"), found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| *name != "type") {
                let name = name.replace('~', "~0").replace('/', "~1");
                find_texts(member, format!("{pointer}/{name}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces secrets in an event, but for the texts of a delta, and leaves out its tokens.
fn redact_event(value: &mut Value, is_delta: bool) {
    let Some(members) = value.as_object_mut() else { return };
    for (name, member) in members {
        match name.as_str() {
            "response" => redact_answer(member),
            "type" | "item_id" => {}
            "delta" if is_delta => drop_all_tokens(member),
            name => {
                drop_tokens(name, member);
                drop_all_tokens(member);
                redact(member);
            }
        }
    }
}

fn write_event(out: &mut String, name: Option<&str>, data: &str) {
    if let Some(name) = name {
        out.push_str("event: ");
        out.push_str(name);
        out.push('\n');
    }
    out.push_str("data: ");
    out.push_str(data);
    out.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

    fn sse(value: &Value) -> Sse {
        let event = value["type"].as_str().map(str::to_owned);
        Sse { event, data: Some(value.to_string()), id: None, retry: None }
    }

    fn pass(relay: &mut ResponseEvents, events: &[Value]) -> (String, Vec<Value>) {
        let out: Vec<u8> = events.iter().flat_map(|event| relay.pass(&sse(event)).to_vec()).collect();
        let out = String::from_utf8(out).unwrap();
        let data = out.lines().filter_map(|line| line.strip_prefix("data: "));
        let values = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        (out, values)
    }

    fn delta(number: u64, text: &str) -> Value {
        json!({ "type": "response.output_text.delta", "sequence_number": number, "output_index": 0,
                "item_id": "msg_1", "content_index": 0, "delta": text, "logprobs": [] })
    }

    #[test]
    fn ordinary_events_are_passed_on_byte_for_byte() {
        let mut relay = ResponseEvents::default();
        let data = r#"{"type":"response.output_text.delta","delta":"Hello",  "odd":1}"#;
        let event = Sse { event: None, data: Some(data.to_owned()), id: None, retry: None };
        assert_eq!(relay.pass(&event), Bytes::from(format!("data: {data}\n\n")));
    }

    /// G11
    #[test]
    fn secret_that_is_split_over_deltas_is_replaced_in_all_events() {
        let secret = format!("sk-{BODY}");
        let part = json!({ "type": "output_text", "text": format!("Use {secret}"), "annotations": [] });
        let item = json!({ "id": "msg_1", "type": "message", "content": [part] });
        let response = json!({ "id": "resp_1", "output": [item],
                               "usage": { "input_tokens": 1, "output_tokens": 2 } });
        let place = json!({ "output_index": 0, "item_id": "msg_1", "content_index": 0 });
        let event = |kind: &str, number: u64, field: &str, value: &Value| {
            let mut event = place.clone();
            event["type"] = kind.into();
            event["sequence_number"] = number.into();
            event[field] = value.clone();
            event
        };
        let mut relay = ResponseEvents::default();
        let (out, values) = pass(
            &mut relay,
            &[
                delta(0, "Use sk-"),
                delta(1, &BODY[..12]),
                delta(2, &BODY[12..]),
                event("response.output_text.done", 3, "text", &json!(format!("Use {secret}"))),
                event("response.content_part.done", 4, "part", &part),
                event("response.output_item.done", 5, "item", &item),
                json!({ "type": "response.completed", "sequence_number": 6, "response": response }),
            ],
        );
        assert!(!out.contains(&BODY[..12]) && !out.contains(&BODY[12..]), "{out}");
        let deltas: String = values.iter().filter_map(|value| value["delta"].as_str()).collect();
        assert_eq!(deltas, "Use [redacted:model_key]");
        let numbers: Vec<u64> =
            values.iter().map(|value| value["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<u64>>());
        assert!(out.contains("event: response.completed\n") && relay.is_complete());
        assert_eq!(relay.end(), Bytes::new());
    }

    #[test]
    fn arguments_of_calls_are_redacted_too() {
        let call = |number: u64, text: &str| {
            json!({ "type": "response.function_call_arguments.delta", "sequence_number": number,
                    "output_index": 1, "item_id": "fc_1", "delta": text })
        };
        let done = json!({ "type": "response.function_call_arguments.done", "sequence_number": 2,
                           "output_index": 1, "item_id": "fc_1",
                           "arguments": format!("{{\"key\":\"ghp_{BODY}\"}}") });
        let mut relay = ResponseEvents::default();
        let (out, _) = pass(
            &mut relay,
            &[
                call(0, &format!("{{\"key\":\"ghp_{}", &BODY[..5])),
                call(1, &format!("{}\"}}", &BODY[5..])),
                done,
            ],
        );
        assert!(!out.contains(&BODY[..5]) && !out.contains(&BODY[20..]), "{out}");
    }

    /// G11: also if a delta is an object, and in members that only some servers send.
    #[test]
    fn deltas_that_are_objects_are_redacted_and_have_no_tokens() {
        let token = json!({ "token": "sk-", "logprob": -0.1, "bytes": [115, 107, 45] });
        let delta = |text: &str| {
            json!({ "type": "response.reasoning.delta", "output_index": 0, "item_id": "rs_1",
                    "delta": { "type": "summary", "notes": [text] }, "logprobs": [token],
                    "note": format!("sk-{BODY}") })
        };
        for cut in 1..BODY.len() {
            let mut relay = ResponseEvents::default();
            let events = [
                delta("use sk-"),
                delta(&BODY[..cut]),
                delta(&BODY[cut..]),
                json!({ "type": "response.output_item.done", "output_index": 0 }),
            ];
            let (out, values) = pass(&mut relay, &events);
            let text: String = values.iter().filter_map(|it| it["delta"]["notes"][0].as_str()).collect();
            assert_eq!(text, "use [redacted:model_key]");
            assert!(!out.contains(BODY) && !out.contains("bytes"), "{out}");
            assert_eq!((values.len(), &values[3]["delta"]["type"]), (5, &json!("summary")));
        }
    }

    #[test]
    fn stream_that_breaks_off_ends_with_an_error() {
        let mut relay = ResponseEvents::default();
        pass(&mut relay, &[delta(0, "Hel")]);
        assert!(!relay.is_complete());
        let error = ApiError::new(http::StatusCode::BAD_GATEWAY, "model_server_error", "It broke off.");
        let end = String::from_utf8(relay.fail(&error).to_vec()).unwrap();
        assert!(end.starts_with("event: error\ndata: "), "{end}");
        assert!(end.contains("\"sequence_number\":1") && end.contains("\"error\":{"), "{end}");
    }
}
