//! The events of a streamed response (`/v1/responses`).
//!
//! Text arrives in deltas, and once more as a whole in the events that end a part, an item and the response.
//! The end of a delta that may begin a secret is held back; what is left of it is sent as a delta of its own
//! before the event that ends the text, so the events after it are numbered anew. A delta is a text, or an
//! object with texts in it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use secrets::{StreamRedactor, redact_by_kind};
use serde_json::Value;
use sse_stream::Sse;

use super::{
    base64::{is_base64, redact_string},
    redaction::{drop_all_tokens, redact_answer, redact_named},
    stream::{Relay, is_error},
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
    fn pass(&mut self, event: &Sse) -> Option<Bytes> {
        let data = event.data.as_deref().unwrap_or_default();
        if data.trim().is_empty() {
            return Some(Bytes::new());
        }
        let mut value = Value::Object(serde_json::from_str(data).ok()?);
        let kind = value.get("type").and_then(Value::as_str).map(str::to_owned);
        // Clients read the one or the other.
        let kinds = [kind.as_deref(), event.event.as_deref()].map(Option::unwrap_or_default);
        let name = event.event.as_deref().map(redact_by_kind);
        let mut out = String::new();
        let has_ended = kinds.iter().any(|kind| kind.ends_with(".done") || is_last(kind));
        let delta = value.get_mut("delta").filter(|_| !has_ended).map(Value::take);
        redact_event(&mut value);
        if let Some(mut delta) = delta {
            drop_all_tokens(&mut delta);
            redact_named(&mut delta);
            value["delta"] = delta;
            self.redact_delta(kind.as_deref().unwrap_or(kinds[1]), &mut value, name.as_deref());
        }
        if has_ended {
            self.end_texts(&value, &mut out);
        }
        self.note_end(kinds, &value);
        self.number(&mut value);
        write_event(&mut out, name.as_deref(), &value.to_string());
        Some(Bytes::from(out))
    }

    fn is_complete(&self, _is_done: bool) -> bool {
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
            let place = format!("{place}{pointer}");
            // A piece of sound.
            if !self.texts.contains_key(&place) && is_base64(delta) {
                *delta = redact_string(delta).into_owned();
                continue;
            }
            let text = self.texts.entry(place).or_insert_with(|| StreamedText {
                redactor: StreamRedactor::default(),
                last: Value::Null,
                pointer,
                name: name.map(str::to_owned),
            });
            *delta = text.redactor.push(delta);
            text.last.clone_from(&last);
        }
    }

    /// Sends what was held back of the texts that an event ends: those of its item, or all. What follows of a
    /// text all the same is read with what was sent.
    fn end_texts(&mut self, value: &Value, out: &mut String) {
        let number = value.get("sequence_number").and_then(Value::as_u64);
        for text in self.texts.values_mut() {
            if value.get("output_index").is_some_and(|index| text.last.get("output_index") != Some(index)) {
                continue;
            }
            let left = text.redactor.flush();
            if left.is_empty() {
                continue;
            }
            let mut last = text.last.clone();
            if let Some(text) = last.pointer_mut(&text.pointer) {
                *text = left.into();
            }
            if let Some(number) = number {
                last["sequence_number"] = (number + self.added).into();
            }
            self.added += 1;
            write_event(out, text.name.as_deref(), &last.to_string());
        }
    }

    /// Counts the usage of the last event.
    fn note_end(&mut self, kinds: [&str; 2], value: &Value) {
        let has_ended = kinds.iter().any(|kind| *kind == ERROR_EVENT || is_last(kind));
        if has_ended || value.get("error").is_some_and(is_error) {
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
fn redact_event(value: &mut Value) {
    if let Some(response) = value.get_mut("response") {
        let mut response = response.take();
        redact_answer(&mut response);
        redact_answer(value);
        value["response"] = response;
    } else {
        redact_answer(value);
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
        let out: Vec<u8> =
            events.iter().flat_map(|event| relay.pass(&sse(event)).unwrap().to_vec()).collect();
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
    fn ordinary_events_are_passed_on_as_they_are() {
        let mut relay = ResponseEvents::default();
        let event = json!({ "type": "response.output_text.delta", "delta": "Hello", "odd": 1.5 });
        assert_eq!(pass(&mut relay, std::slice::from_ref(&event)).1, [event]);
    }

    /// G11
    #[test]
    fn every_string_of_a_response_is_redacted() {
        let secret = format!("sk-{BODY}");
        let response = json!({ "id": "resp_1", "output": [], "instructions": secret,
                               "metadata": { "note": secret }, "incomplete_details": { "reason": secret },
                               "reasoning": { "summary": secret }, "usage": { "input_tokens": 1 } });
        let created = json!({ "type": "response.created", "item_id": secret, "response": response });
        let (out, values) = pass(&mut ResponseEvents::default(), &[created]);
        assert!(!out.contains(BODY), "{out}");
        assert_eq!(values[0]["response"]["metadata"]["note"], "[redacted:model_key]");
        assert_eq!(values[0]["response"]["usage"]["input_tokens"], 1);
    }

    /// G11: a delta is one by its member, whatever the server calls its event.
    #[test]
    fn deltas_of_any_kind_are_redacted_also_after_their_end() {
        let secret = format!("sk-{BODY}");
        let event = |name: &str, kind: &str, field: &str, text: &str| {
            let data = json!({ "type": kind, "output_index": 0, (field): text }).to_string();
            Sse { event: Some(name.to_owned()), data: Some(data), id: None, retry: None }
        };
        let kind = "response.output_text.delta";
        let done = event("x", "response.output_text.done", "text", "use sk-");
        let cases = [
            ("response.text", kind, None),
            ("response.text", "x", None),
            (kind, "x", None),
            (kind, kind, Some(done)),
        ];
        for (kind, name, between) in cases {
            let mut relay = ResponseEvents::default();
            let mut all = relay.pass(&event(name, kind, "delta", "use sk-")).unwrap().to_vec();
            all.extend(between.iter().flat_map(|between| relay.pass(between).unwrap()));
            all.extend(relay.pass(&event(name, kind, "delta", &BODY[..9])).unwrap());
            all.extend(relay.pass(&event(name, kind, "delta", &BODY[9..])).unwrap());
            all.extend(relay.pass(&event(&secret, "response.completed", "note", "")).unwrap());
            let all = String::from_utf8(all).unwrap();
            assert!(!all.contains(&BODY[..9]) && !all.contains(&BODY[9..]), "{name} {kind}: {all}");
            assert!(all.contains("[redacted:"), "{name} {kind}: {all}");
        }
    }

    /// A part of the answer is missing, such as a delta with half a surrogate pair.
    #[test]
    fn event_that_cannot_be_read_breaks_the_stream() {
        let data = Some(r#"{"type":"response.output_text.delta","delta":"\ud83d"}"#.to_owned());
        assert_eq!(ResponseEvents::default().pass(&Sse { data, ..Sse::default() }), None);
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
        assert!(out.contains("event: response.completed\n") && relay.is_complete(true));
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
        assert!(!relay.is_complete(true));
        let error = ApiError::new(http::StatusCode::BAD_GATEWAY, "model_server_error", "It broke off.");
        let end = String::from_utf8(relay.fail(&error).to_vec()).unwrap();
        assert!(end.starts_with("event: error\ndata: "), "{end}");
        assert!(end.contains("\"sequence_number\":1") && end.contains("\"error\":{"), "{end}");
    }
}
