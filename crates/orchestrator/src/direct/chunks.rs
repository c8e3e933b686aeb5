//! The chunks of a streamed chat completion.

use std::{collections::BTreeMap, sync::Arc};

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};
use sse_stream::Sse;

use super::{
    choice_texts::ChoiceTexts,
    redaction::{redact, redact_whole},
    stream::{DONE, Relay, is_error},
};
use crate::{error::ApiError, metrics::Metrics};

/// The members of a chunk that are the same in all chunks of a completion.
const HEAD: [&str; 6] = ["id", "object", "created", "model", "service_tier", "system_fingerprint"];

/// Passes on the chunks of one answer.
#[derive(Default)]
pub(super) struct Chunks {
    wants_usage: bool,
    /// How many choices the client asked for.
    asked: usize,
    /// The fields of [`HEAD`] in the first chunk with a choice.
    head: Option<Map<String, Value>>,
    /// The choices by their index.
    choices: BTreeMap<u64, Choice>,
    /// The members of chunks that belong to no choice.
    others: ChoiceTexts,
    /// Whether the server reported an error.
    has_failed: bool,
    usage: Usage,
}

#[derive(Default)]
struct Choice {
    texts: ChoiceTexts,
    has_ended: bool,
}

/// What an answer used, by the last chunk that says so: some servers say in each what they used up to then.
/// It is counted when the stream ends, however it ends.
#[derive(Default)]
struct Usage {
    last: Option<Value>,
    /// How many chunks had it.
    reports: u32,
    metrics: Arc<Metrics>,
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.metrics.count_direct_usage(self.last.as_ref());
    }
}

impl Relay for Chunks {
    fn pass(&mut self, event: &Sse) -> Option<Bytes> {
        self.pass_data(event.data.as_deref().unwrap_or_default())
    }

    fn is_complete(&self, is_done: bool) -> bool {
        let (begun, ended) = (self.choices.len(), self.choices.values().filter(|it| it.has_ended).count());
        // A server that says that it is done may give fewer choices than were asked for. Some never give a
        // reason, but the usage at the end; of those that report it in every chunk, an aborted answer looks
        // the same.
        let is_whole = match ended {
            0 => begun > 0 && is_done && self.usage.reports == 1,
            ended => ended == begun && (is_done || ended >= self.asked),
        };
        self.has_failed || is_whole
    }

    fn end(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        let choices = std::mem::take(&mut self.choices);
        // After an error, what is held back may be the beginning of a secret that was to follow.
        if !self.has_failed {
            for (index, mut choice) in choices {
                self.write_rest(&mut out, index, choice.texts.drain());
            }
        }
        out.extend_from_slice(&event(DONE));
        out.freeze()
    }

    fn fail(&mut self, error: &ApiError) -> Bytes {
        event(&String::from_utf8_lossy(&error.to_json()))
    }
}

impl Chunks {
    /// Passes on the chunks of an answer with so many choices.
    pub(super) fn new(wants_usage: bool, asked: usize, metrics: Arc<Metrics>) -> Self {
        Self { wants_usage, asked, usage: Usage { last: None, reports: 0, metrics }, ..Self::default() }
    }

    /// Returns what the client gets for a chunk: what was read and redacted, never the bytes of the server,
    /// which may name a member twice.
    fn pass_data(&mut self, data: &str) -> Option<Bytes> {
        if data.trim().is_empty() {
            return Some(Bytes::new());
        }
        let mut chunk: Map<String, Value> = serde_json::from_str(data).ok()?;
        let is_error = chunk.get("error").is_some_and(is_error);
        self.has_failed |= is_error;
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage.last = Some(usage.clone());
            self.usage.reports = self.usage.reports.saturating_add(1);
        }
        let mut choices = chunk.remove("choices");
        let has_choices = choices.as_ref().and_then(Value::as_array).is_some_and(|it| !it.is_empty());
        let has_usage = chunk.get("usage").is_some_and(|usage| !usage.is_null());
        if has_usage && !has_choices && !is_error && !self.wants_usage {
            return Some(Bytes::new());
        }
        let usage = chunk.remove("usage");
        let mut others = Value::Object(chunk);
        self.others.pass_others(&mut others);
        if has_choices && self.head.is_none() {
            self.head = Some(head_of(&others));
        }
        let mut out = BytesMut::new();
        if let Some(choices) = &mut choices {
            self.pass_choices(choices, &mut out);
        }
        if let Some(mut usage) = usage {
            redact(&mut usage);
            others["usage"] = usage;
        }
        if let Some(choices) = choices {
            others["choices"] = choices;
        }
        out.extend_from_slice(&event(&others.to_string()));
        Some(out.freeze())
    }

    /// Replaces secrets in the choices of a chunk. What is sent before them is written to `out`.
    fn pass_choices(&mut self, choices: &mut Value, out: &mut BytesMut) {
        let Value::Array(choices) = choices else {
            redact_whole(choices);
            return;
        };
        for choice in choices {
            let Value::Object(choice) = choice else {
                redact_whole(choice);
                continue;
            };
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or_default();
            let has_reason = choice.get("finish_reason").is_some_and(is_reason);
            let known = self.choices.entry(index).or_default();
            // A server that goes on after a reason sends one with every chunk: what it holds back waits for
            // the end of the stream.
            let is_last = has_reason && !known.has_ended;
            known.has_ended |= has_reason;
            let before = known.texts.pass(choice, is_last && !self.has_failed);
            if !self.has_failed {
                self.write_rest(out, index, before);
            }
        }
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

/// Returns whether a `finish_reason` says that a choice has ended: some servers send an empty one until then.
fn is_reason(reason: &Value) -> bool {
    reason.as_str().is_some_and(|reason| !matches!(reason, "" | "null" | "None"))
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

    fn pass(relay: &mut Chunks, data: &str) -> Bytes {
        relay.pass_data(data).expect("a chunk that can be read")
    }

    fn parsed(events: &Bytes) -> Vec<Value> {
        let events = std::str::from_utf8(events).unwrap();
        let data = events.split("data: ").map(str::trim).filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    fn text(events: &[Bytes]) -> String {
        let all = events.iter().map(|it| String::from_utf8_lossy(it).into_owned()).collect::<String>();
        let chunks = all.split("data: ").filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
        chunks.filter_map(|it| Some(it["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect()
    }

    #[test]
    fn ordinary_chunks_are_passed_on_as_they_are() {
        let mut relay = Chunks::default();
        let chunk = r#"{"choices":[{"delta":{"content":"Hello","x":1.50},"index":0}],"odd":true}"#;
        assert_eq!(parsed(&pass(&mut relay, chunk)), [serde_json::from_str::<Value>(chunk).unwrap()]);
        assert_eq!(pass(&mut relay, ""), Bytes::new());
    }

    /// G11: a member that is named twice is not read the second time.
    #[test]
    fn only_what_was_read_is_passed_on() {
        let chunk = format!(r#"{{"choices":[{{"delta":{{"content":"sk-{BODY}","content":"hi"}}}}]}}"#);
        let out = pass(&mut Chunks::default(), &chunk);
        assert_eq!(parsed(&out)[0]["choices"][0]["delta"]["content"], "hi");
        assert!(!String::from_utf8_lossy(&out).contains(BODY));
    }

    /// G11
    #[test]
    fn chunk_with_an_error_is_redacted_as_any_other() {
        let secret = format!("sk-{BODY}");
        for error in [json!(false), json!(""), json!({ "message": secret, "code": secret }), json!(secret)] {
            for finish in [None, Some("error")] {
                let mut relay = Chunks::default();
                let mut all = pass(&mut relay, &delta(&format!("key {}", &secret[..9]), None)).to_vec();
                let mut chunk: Value = serde_json::from_str(&delta(&secret[9..], finish)).unwrap();
                chunk["error"] = error.clone();
                chunk["choices"].as_array_mut().unwrap().push(json!({ "delta": { "content": secret } }));
                all.extend(pass(&mut relay, &chunk.to_string()));
                assert_eq!(relay.is_complete(false), is_error(&error) || finish.is_some(), "{error}");
                all.extend(relay.end());
                let all = String::from_utf8(all).unwrap();
                assert!(!all.contains(&BODY[..6]) && !all.contains(&BODY[20..]), "{error} {all}");
            }
        }
    }

    /// G11: plain members are redacted as a whole, and with what they were in earlier chunks.
    #[test]
    fn members_beside_the_choices_are_redacted() {
        let secret = format!("sk-{BODY}");
        let mut chunk: Value = serde_json::from_str(&delta("hi", None)).unwrap();
        chunk["citations"] = json!([format!("see {secret}")]);
        chunk["__verbose"] = json!({ "content": "sk-" });
        chunk["system_fingerprint"] = json!(secret);
        chunk[&secret] = json!({ "password": BODY, "usage": 7 });
        let mut relay = Chunks::default();
        for _ in 0..2 {
            let out = pass(&mut relay, &chunk.to_string());
            assert!(!String::from_utf8_lossy(&out).contains("sk-") && !out.is_empty());
            assert!(!String::from_utf8_lossy(&out).contains(BODY));
            assert_eq!(parsed(&out)[0]["citations"], json!(["see [redacted:model_key]"]));
        }
        pass(&mut relay, r#"{"reasoning":"sk-Q7rT2"}"#);
        let out = pass(&mut relay, &json!({ "reasoning": &BODY[5..] }).to_string());
        assert_eq!(parsed(&out), [json!({ "reasoning": "[redacted:secret]" })]);
        for choices in [json!({ "0": { "delta": { "content": secret } } }), json!([secret])] {
            let out = pass(&mut relay, &json!({ "choices": choices }).to_string());
            assert!(!String::from_utf8_lossy(&out).contains(BODY), "{choices}");
        }
    }

    #[test]
    fn secret_that_is_split_over_chunks_is_replaced() {
        let mut relay = Chunks::default();
        let pieces = ["The key is sk-", &BODY[..9], &BODY[9..20], &BODY[20..], "."];
        let mut events: Vec<Bytes> =
            pieces.iter().map(|piece| pass(&mut relay, &delta(piece, None))).collect();
        events.push(pass(&mut relay, r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#));
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
        pass(&mut relay, &first.to_string());
        let end = r#"{"id":"c-1","choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#;
        let out = String::from_utf8(pass(&mut relay, end).to_vec()).unwrap();
        let (rest, last) = out.split_once("\n\n").unwrap();
        let rest: Value = serde_json::from_str(rest.strip_prefix("data: ").unwrap()).unwrap();
        let choice = json!({ "index": 1, "delta": { "content": "sk-" }, "finish_reason": null });
        let expected = json!({ "id": "c-1", "object": "chat.completion.chunk", "created": 7, "model": "m",
                               "choices": [choice] });
        assert_eq!(rest, expected);
        let last: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(last, serde_json::from_str::<Value>(end).unwrap());
    }

    #[test]
    fn what_was_held_back_of_a_choice_without_a_reason_is_sent_at_the_end() {
        let mut relay = Chunks::default();
        pass(&mut relay, r#"{"choices":[{"index":1,"delta":{"reasoning":"see sk-"}}]}"#);
        pass(&mut relay, &delta("Done", Some("stop")));
        let out = String::from_utf8(relay.end().to_vec()).unwrap();
        assert!(out.contains(r#""reasoning":"sk-""#) && out.ends_with("data: [DONE]\n\n"), "{out}");
        assert_eq!(relay.end(), event(DONE));
    }

    #[test]
    fn what_was_held_back_is_not_sent_after_an_error() {
        let mut relay = Chunks::default();
        pass(&mut relay, &delta("Use sk-Q7r", None));
        pass(&mut relay, r#"{"error":{"message":"out of memory"}}"#);
        assert_eq!(relay.end(), event(DONE));
    }

    /// A part of the answer is missing, such as a chunk with half a surrogate pair.
    #[test]
    fn chunk_that_cannot_be_read_breaks_the_stream() {
        for data in [r#"{"choices":[{"delta":{"content":"\ud83d"}}]}"#, r#"{"choices":[{"del"#, "text", "[]"]
        {
            assert_eq!(Chunks::default().pass_data(data), None, "{data}");
        }
    }

    #[test]
    fn stream_that_breaks_off_in_another_choice_is_not_complete() {
        let choice = |index: u64, finish: Option<&str>| {
            json!({ "choices": [{ "index": index, "delta": {}, "finish_reason": finish }] }).to_string()
        };
        let mut relay = Chunks { asked: 2, ..Chunks::default() };
        pass(&mut relay, &choice(0, Some("stop")));
        assert!(!relay.is_complete(false), "the other choice did not begin");
        assert!(relay.is_complete(true), "the server gives one choice");
        pass(&mut relay, &choice(1, None));
        assert!(!relay.is_complete(false) && !relay.is_complete(true));
        pass(&mut relay, &choice(1, Some("stop")));
        assert!(relay.is_complete(false));
    }

    #[test]
    fn usage_that_the_client_did_not_ask_for_is_counted_and_left_out() {
        let usage = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        assert_eq!(pass(&mut Chunks::default(), usage), Bytes::new());
        let mut relay = Chunks { wants_usage: true, ..Chunks::default() };
        let expected: Value = serde_json::from_str(usage).unwrap();
        assert_eq!(parsed(&pass(&mut relay, usage)), [expected]);
    }

    /// G11: the choice goes on, so a secret is held back, and a stream that ends is not complete.
    #[test]
    fn empty_finish_reason_is_none() {
        let mut relay = Chunks::default();
        let pieces = ["see https://bob", ":hunt", "er2", "@host/ now"];
        let mut events: Vec<Bytes> =
            pieces.iter().map(|piece| pass(&mut relay, &delta(piece, Some("")))).collect();
        assert!(!relay.is_complete(false));
        events.push(pass(&mut relay, &delta("", Some("stop"))));
        assert!(relay.is_complete(false));
        let text = text(&events);
        assert!(!text.contains("hunt") && !text.contains("er2") && text.ends_with(" now"), "{text}");
    }

    #[test]
    fn stream_without_a_finish_reason_is_complete_with_usage_and_done() {
        let mut relay = Chunks::default();
        pass(&mut relay, &delta("Use sk-", None));
        assert!(!relay.is_complete(true), "nothing tells that it is whole");
        pass(&mut relay, r#"{"choices":[{"index":0,"delta":{}}],"usage":{"completion_tokens":2}}"#);
        assert!(!relay.is_complete(false) && relay.is_complete(true));
        assert_eq!(text(&[relay.end()]), "sk-");
    }

    /// G11: `null` as a word, and a reason in every chunk.
    #[test]
    fn reason_in_every_chunk_lets_no_secret_through() {
        for reason in [json!("null"), json!(false), json!("stop")] {
            let mut relay = Chunks::default();
            let mut all = Vec::new();
            for piece in ["key ", "sk-", &BODY[..6], &BODY[6..12], &BODY[12..], " ok"] {
                let mut chunk: Value = serde_json::from_str(&delta(piece, None)).unwrap();
                chunk["choices"][0]["finish_reason"] = reason.clone();
                all.extend(pass(&mut relay, &chunk.to_string()));
            }
            all.extend(relay.end());
            let all = String::from_utf8(all).unwrap();
            assert!(!all.contains(&BODY[..6]) && !all.contains(&BODY[12..]), "{reason} {all}");
        }
    }

    #[test]
    fn aborted_stream_with_usage_in_every_chunk_is_not_complete() {
        let mut relay = Chunks::default();
        for _ in 0..2 {
            pass(&mut relay, r#"{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":2}}"#);
        }
        assert!(!relay.is_complete(true));
    }

    #[test]
    fn usage_in_every_chunk_is_counted_once() {
        let metrics = Arc::new(Metrics::default());
        let mut relay = Chunks::new(true, 1, metrics.clone());
        for completion in 1..=3 {
            let mut chunk: Value = serde_json::from_str(&delta("a", None)).unwrap();
            chunk["usage"] = json!({ "prompt_tokens": 10, "completion_tokens": completion });
            pass(&mut relay, &chunk.to_string());
        }
        drop(relay);
        let counted = metrics.render();
        for line in ["direct_prompt_tokens_total 10\n", "direct_completion_tokens_total 3\n"] {
            assert!(counted.contains(line), "{counted}");
        }
    }

    #[test]
    fn stream_that_breaks_off_is_not_complete() {
        let mut relay = Chunks::default();
        pass(&mut relay, &delta("Hel", None));
        assert!(!relay.is_complete(true));
        let error = ApiError::new(http::StatusCode::BAD_GATEWAY, "model_server_error", "It broke off.");
        let end = String::from_utf8(relay.fail(&error).to_vec()).unwrap();
        assert!(end.contains("\"error\"") && end.contains("broke off"), "{end}");
    }
}
