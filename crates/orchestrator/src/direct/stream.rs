//! Streamed answers: server-sent events that are passed on as they arrive, without secrets.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use secrets::StreamRedactor;
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, timeout_at};

use super::server;
use crate::{error::ApiError, metrics::Metrics};

/// Ends a stream.
const DONE: &str = "[DONE]";
/// A line that clients ignore. It keeps proxies from closing the connection.
const COMMENT: &[u8] = b": waiting for the model\n\n";
/// The texts of a delta that are streamed in pieces.
const TEXTS: [&str; 3] = ["content", "reasoning_content", "refusal"];

/// Returns the body of a streamed answer. Dropping it ends the request to the model server.
pub(super) fn body(
    answer: reqwest::Response,
    wants_usage: bool,
    silence: Duration,
    keep_alive: Duration,
    metrics: Arc<Metrics>,
) -> Body {
    let events = SseStream::from_bytes_stream(answer.bytes_stream()).boxed();
    let relay = Relay { wants_usage, metrics, ..Relay::default() };
    Body::from_stream(relayed(events, relay, silence, keep_alive))
}

type Events = BoxStream<'static, Result<Sse, sse_stream::Error>>;

fn relayed(
    events: Events,
    relay: Relay,
    silence: Duration,
    keep_alive: Duration,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let state = Some((events, relay, Instant::now()));
    futures_util::stream::unfold(state, move |state| async move {
        let (mut events, mut relay, heard_at) = state?;
        let until = (Instant::now() + keep_alive).min(heard_at + silence);
        match timeout_at(until, events.next()).await {
            Err(_) if Instant::now() >= heard_at + silence => Some((Ok(failure(&server::silent())), None)),
            Err(_) => Some((Ok(Bytes::from_static(COMMENT)), Some((events, relay, heard_at)))),
            Ok(None | Some(Err(_))) => Some((Ok(relay.end()), None)),
            Ok(Some(Ok(event))) => match event.data.as_deref() {
                Some(DONE) => Some((Ok(relay.end()), None)),
                data => {
                    Some((Ok(relay.pass(data.unwrap_or_default())), Some((events, relay, Instant::now()))))
                }
            },
        }
    })
}

fn event(data: &str) -> Bytes {
    Bytes::from(format!("data: {data}\n\n"))
}

fn failure(error: &ApiError) -> Bytes {
    event(&String::from_utf8_lossy(&error.to_json()))
}

/// Passes on the events of one answer.
#[derive(Default)]
struct Relay {
    wants_usage: bool,
    /// One for each text that is streamed, by its place in the answer.
    redactors: BTreeMap<String, StreamRedactor>,
    /// Whether a choice has ended, or the server reported an error.
    is_complete: bool,
    metrics: Arc<Metrics>,
}

impl Relay {
    /// Returns what the client gets for one event.
    fn pass(&mut self, data: &str) -> Bytes {
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

    /// Returns the end of the stream. One that breaks off ends with an error: clients take the mere end of a
    /// stream for success.
    fn end(&mut self) -> Bytes {
        if self.is_complete {
            return event(DONE);
        }
        let message = "The model server broke off its answer; repeat the request.";
        failure(&ApiError::new(http::StatusCode::BAD_GATEWAY, "model_server_error", message))
    }
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
        let mut relay = Relay::default();
        let chunk = r#"{"choices":[{"delta":{"content":"Hello","x":1},"index":0}],  "odd":true}"#;
        assert_eq!(relay.pass(chunk), event(chunk));
    }

    #[test]
    fn secret_that_is_split_over_chunks_is_replaced() {
        let mut relay = Relay::default();
        let pieces = ["The key is sk-", &BODY[..9], &BODY[9..20], &BODY[20..], "."];
        let mut events: Vec<Bytes> = pieces.iter().map(|piece| relay.pass(&delta(piece, None))).collect();
        events.push(relay.pass(r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#));
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
        assert_eq!(Relay::default().pass(usage), Bytes::new());
        let mut relay = Relay { wants_usage: true, ..Relay::default() };
        assert_eq!(relay.pass(usage), event(usage));
    }

    #[test]
    fn stream_that_breaks_off_ends_with_an_error() {
        let mut relay = Relay::default();
        relay.pass(&delta("Hel", None));
        let end = String::from_utf8(relay.end().to_vec()).unwrap();
        assert!(end.contains("\"error\"") && end.contains("broke off"), "{end}");
    }
}
