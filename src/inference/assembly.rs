//! Assembles a reply from the fragments of a stream. Servers that claim compatibility omit different fields,
//! so missing fields are made up for where possible, and only needed ones are required.

use serde_json::Value;
use subjects::ToolCall;

use super::{Finish, Tokens};

/// Fields in which servers stream the reasoning of a model before its answer.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Maximum number of calls in one reply.
const MAX_CALLS: usize = 64;

#[derive(Debug)]
pub(super) struct Assembly {
    content: String,
    calls: Vec<ToolCall>,
    /// The server's index of each call, to which fragments refer.
    numbers: Vec<u64>,
    finish: Option<Finish>,
    tokens: Option<Tokens>,
    bytes: usize,
    max_bytes: usize,
}

/// What a fragment added to the reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The number of bytes appended to the content.
    Text(usize),
    /// Another part of the reply: a piece of a call, reasoning, or the finish reason.
    Other,
    /// Nothing.
    Empty,
    /// A size limit is reached; no more should be read.
    LimitReached,
}

/// A complete reply.
#[derive(Debug, PartialEq)]
pub(super) struct Assembled {
    pub(super) content: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) finish: Finish,
    /// As counted by the server, if it reports usage.
    pub(super) tokens: Option<Tokens>,
}

impl Assembly {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            content: String::new(),
            calls: Vec::new(),
            numbers: Vec::new(),
            finish: None,
            tokens: None,
            bytes: 0,
            max_bytes,
        }
    }

    pub(super) fn content(&self) -> &str {
        &self.content
    }

    /// Adds one event of the stream, or a whole reply from a server that does not stream. Returns the error
    /// message that the server sent, if the event is one.
    pub(super) fn push(&mut self, chunk: &Value) -> Result<Pushed, String> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str);
            return Err(message.map_or_else(|| error.to_string(), str::to_owned));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
            let cached = usage.pointer("/prompt_tokens_details/cached_tokens").and_then(Value::as_u64);
            self.tokens = Some(Tokens {
                prompt: count("prompt_tokens"),
                completion: count("completion_tokens"),
                cached: cached.unwrap_or(0),
            });
        }
        // llama.cpp reports what it had in its cache beside the usage.
        let cached = chunk.pointer("/timings/cache_n").and_then(Value::as_u64);
        if let (Some(tokens), Some(cached)) = (&mut self.tokens, cached) {
            tokens.cached = cached;
        }
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else {
            return Ok(Pushed::Empty);
        };
        let part = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let (before, bytes_before) = (self.content.len(), self.bytes);
        let mut full = false;
        if let Some(text) = part.get("content").and_then(Value::as_str) {
            full |= self.push_text(text);
        }
        for fragment in part.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            full |= self.push_call(fragment);
        }
        if full {
            self.finish = Some(Finish::CutShort);
            return Ok(Pushed::LimitReached);
        }
        let finish = choice.get("finish_reason").and_then(Value::as_str);
        match finish {
            Some("length") => self.finish = Some(Finish::Length),
            Some(_) => self.finish = Some(Finish::Stop),
            None => {}
        }
        let added = self.content.len() - before;
        let has_more = self.bytes > bytes_before
            || finish.is_some()
            || REASONING_FIELDS.iter().any(|name| has_text(part, name));
        Ok(match (added, has_more) {
            (0, true) => Pushed::Other,
            (0, false) => Pushed::Empty,
            (added, _) => Pushed::Text(added),
        })
    }

    /// Appends text up to the limit. Returns whether the limit was exceeded.
    fn push_text(&mut self, text: &str) -> bool {
        let room = self.max_bytes - self.bytes;
        let fits = text.len() <= room;
        let taken = if fits { text } else { &text[..text.floor_char_boundary(room)] };
        self.content.push_str(taken);
        self.bytes += taken.len();
        !fits
    }

    /// Adds a fragment of a call. Returns whether a limit was exceeded.
    fn push_call(&mut self, fragment: &Value) -> bool {
        let text = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.clone(),
            // Some servers send the arguments as a JSON object instead of its text.
            Some(object @ Value::Object(_)) => object.to_string(),
            _ => String::new(),
        };
        let id = text(fragment.get("id"));
        let function = fragment.get("function").unwrap_or(&Value::Null);
        let (name, arguments) = (text(function.get("name")), text(function.get("arguments")));
        self.bytes += name.len() + arguments.len();
        if self.bytes > self.max_bytes {
            self.bytes = self.max_bytes;
            return true;
        }
        let number = fragment.get("index").and_then(Value::as_u64);
        let known = match number {
            // Some servers give all calls the index 0 and distinguish them by id only.
            Some(number) => self.numbers.iter().rposition(|known| *known == number).filter(|position| {
                id.is_empty() || self.calls.get(*position).is_some_and(|call| call.id == id)
            }),
            // Without an index, a new id or a name begins a call and everything else continues the last one.
            None if id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().position(|call| !id.is_empty() && call.id == id),
        };
        match known.and_then(|position| self.calls.get_mut(position)) {
            Some(call) => {
                // A name is sent whole, and some servers repeat it; arguments are sent in pieces.
                if call.name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(&arguments);
                false
            }
            None => {
                let position = self.calls.len();
                let id = if id.is_empty() { format!("call_{position}") } else { id };
                self.numbers.push(number.unwrap_or(u64::MAX - position as u64));
                self.calls.push(ToolCall { id, name, arguments });
                self.calls.len() > MAX_CALLS
            }
        }
    }

    /// Returns the reply, or `None` if the stream ended before the reply was complete.
    pub(super) fn finish(self) -> Option<Assembled> {
        // Some servers send no finish reason, but the usage is only sent at the end.
        let finish = self.finish.or_else(|| self.tokens.map(|_| Finish::Stop))?;
        // The calls of a reply that was cut are incomplete.
        let calls = if finish == Finish::Stop { self.calls } else { Vec::new() };
        Some(Assembled { content: self.content, calls, finish, tokens: self.tokens })
    }
}

fn has_text(part: &Value, name: &str) -> bool {
    part.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assembled(chunks: &[Value]) -> Option<Assembled> {
        let mut assembly = Assembly::new(1_000);
        for chunk in chunks {
            assembly.push(chunk).unwrap();
        }
        assembly.finish()
    }

    fn delta(delta: &Value) -> Value {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
    }

    fn end(reason: &str) -> Value {
        json!({ "choices": [{ "delta": {}, "finish_reason": reason }] })
    }

    #[test]
    fn calls_are_assembled_from_interleaved_fragments() {
        let fragment = |index: u64, id: Value, name: Value, arguments: &str| {
            let function = json!({ "name": name, "arguments": arguments });
            delta(&json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }))
        };
        let reply = assembled(&[
            delta(&json!({ "role": "assistant", "content": null })),
            fragment(0, json!("a"), json!("db_task_get"), ""),
            fragment(1, json!("b"), json!("db_task_list"), "{\"li"),
            fragment(0, Value::Null, Value::Null, "{\"task_id\":"),
            fragment(1, Value::Null, Value::Null, "mit\":2}"),
            fragment(0, Value::Null, Value::Null, "\"t\"}"),
            end("tool_calls"),
            json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } }),
        ])
        .unwrap();
        let calls: Vec<_> =
            reply.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(
            calls,
            [("a", "db_task_get", "{\"task_id\":\"t\"}"), ("b", "db_task_list", "{\"limit\":2}")]
        );
        assert_eq!(reply.tokens, Some(Tokens { prompt: 7, completion: 3, cached: 0 }));
    }

    #[test]
    fn replies_with_missing_fields_are_assembled() {
        let reply = assembled(&[
            delta(&json!({ "tool_calls": [{ "function": { "name": "one", "arguments": "{" } }] })),
            delta(&json!({ "tool_calls": [{ "function": { "arguments": "}" } }] })),
            delta(&json!({ "tool_calls": [{ "function": { "name": "two", "arguments": { "x": 1 } } }] })),
            end("stop"),
        ])
        .unwrap();
        let calls: Vec<_> =
            reply.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
        assert_eq!(calls, [("call_0", "one", "{}"), ("call_1", "two", "{\"x\":1}")]);
        let all_zero = |id: &str, name: &str| {
            let function = json!({ "name": name, "arguments": "{}" });
            delta(&json!({ "tool_calls": [{ "index": 0, "id": id, "function": function }] }))
        };
        let reply = assembled(&[all_zero("a", "one"), all_zero("b", "two"), end("tool_calls")]).unwrap();
        assert_eq!(reply.calls.len(), 2, "{reply:?}");
        let whole =
            json!({ "choices": [{ "message": { "content": "all at once" }, "finish_reason": "stop" }] });
        assert_eq!(assembled(&[whole]).unwrap().content, "all at once");
    }

    #[test]
    fn incomplete_stream_yields_no_reply() {
        assert_eq!(assembled(&[delta(&json!({ "content": "half a" }))]), None);
        assert_eq!(assembled(&[]), None);
    }

    #[test]
    fn long_reply_is_cut_at_the_limit_and_incomplete_calls_are_dropped() {
        let mut assembly = Assembly::new(10);
        assert_eq!(assembly.push(&delta(&json!({ "content": "12345678" }))), Ok(Pushed::Text(8)));
        assert_eq!(assembly.push(&delta(&json!({ "content": "é☂é" }))), Ok(Pushed::LimitReached));
        let reply = assembly.finish().unwrap();
        assert_eq!((reply.content.as_str(), reply.finish), ("12345678é", Finish::CutShort));

        let call =
            json!({ "tool_calls": [{ "index": 0, "function": { "name": "x", "arguments": "{\"a" } }] });
        assert!(assembled(&[delta(&call), end("length")]).unwrap().calls.is_empty());
    }

    #[test]
    fn error_in_the_stream_is_returned() {
        let mut assembly = Assembly::new(10);
        let pushed = assembly.push(&json!({ "error": { "message": "out of memory" } }));
        assert_eq!(pushed, Err("out of memory".to_owned()));
    }
}
