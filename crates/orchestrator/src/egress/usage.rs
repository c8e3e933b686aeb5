//! Reads what a call used from the reply that passes by: a JSON document, or the events of a stream.

use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

/// A document or a line of a stream that is longer is not read, and its usage estimated.
const MAX_BYTES: usize = 4 << 20;
/// Bytes of text that are about one token.
pub(super) const BYTES_PER_TOKEN: u64 = 4;
/// The event after the last one of a stream of chat completions.
const DONE: &[u8] = b"[DONE]";
/// The names of the last events in the other protocols.
const LAST_EVENTS: [&[u8]; 4] =
    [b"response.completed", b"response.incomplete", b"response.failed", b"message_stop"];
/// The members of a document that hold what a model wrote.
const WRITTEN: [&str; 3] = ["choices", "output", "content"];

/// Tokens, as a provider counts them or as they are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) prompt: u64,
    pub(super) completion: u64,
}

impl Tokens {
    pub(super) fn is_within(self, most: Self) -> bool {
        self.prompt <= most.prompt && self.completion <= most.completion
    }
}

/// Reads the usage of one reply.
#[derive(Debug)]
pub(super) struct UsageReader {
    is_stream: bool,
    found: Option<Tokens>,
    /// The document, or the current line of a stream.
    buffer: Vec<u8>,
    /// The document or the line is too long, and skipped.
    skips: bool,
    /// Events of a stream, each about one token.
    events: u64,
    /// The current event is the last one.
    is_last_event: bool,
    is_done: bool,
    /// Size of what a model wrote into a document; until that is read, of all that has come.
    written_bytes: u64,
}

/// The places where the protocols report usage.
#[derive(Deserialize)]
struct Reply {
    usage: Option<Usage>,
    response: Option<Inner>,
    message: Option<Inner>,
}

#[derive(Deserialize)]
struct Inner {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u64>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u64>,
    /// Of Anthropic, which does not count them as input.
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_read_input_tokens: Option<u64>,
}

impl Usage {
    fn is_reported(&self) -> bool {
        self.prompt_tokens.is_some() || self.completion_tokens.is_some()
    }
}

impl UsageReader {
    pub(super) fn new(content_type: Option<&HeaderValue>) -> Self {
        let is_stream = content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        Self {
            is_stream,
            found: None,
            buffer: Vec::new(),
            skips: false,
            events: 0,
            is_last_event: false,
            is_done: false,
            written_bytes: 0,
        }
    }

    /// Reads a piece of the reply.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if !self.is_stream {
            self.written_bytes = self.written_bytes.saturating_add(piece.len() as u64);
            return self.add(piece);
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.add(part);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Returns whether the last event of a stream has come. What follows says nothing about usage.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns what the provider has reported so far. `None` if it has not.
    pub(super) fn reported(&mut self) -> Option<Tokens> {
        if self.is_stream {
            self.end_line();
        } else if !self.buffer.is_empty() {
            self.end_document();
        }
        self.found
    }

    /// Returns about how many tokens the reply has had so far.
    pub(super) fn estimated_completion(&self) -> u64 {
        if self.is_stream { self.events } else { self.written_bytes.div_ceil(BYTES_PER_TOKEN) }
    }

    fn add(&mut self, part: &[u8]) {
        self.skips = self.skips || self.buffer.len() + part.len() > MAX_BYTES;
        if self.skips {
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(part);
        }
    }

    fn end_document(&mut self) {
        let document = std::mem::take(&mut self.buffer);
        self.read(&document);
        if self.found.is_none()
            && let Ok(reply) = serde_json::from_slice::<Value>(&document)
        {
            self.written_bytes = WRITTEN.iter().filter_map(|name| reply.get(name)).map(text_bytes).sum();
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.buffer);
        let is_skipped = std::mem::take(&mut self.skips);
        if let Some(name) = line.strip_prefix(b"event:") {
            self.is_last_event = LAST_EVENTS.contains(&name.trim_ascii());
        }
        let Some(data) = line.strip_prefix(b"data:") else { return };
        if data.trim_ascii() == DONE {
            self.is_done = true;
            return;
        }
        self.events += 1;
        let names_usage = data.windows(7).any(|word| word == b"\"usage\"");
        if names_usage && !is_skipped {
            self.read(data);
        }
        self.is_done |= self.is_last_event;
    }

    fn read(&mut self, json: &[u8]) {
        let Ok(reply) = serde_json::from_slice::<Reply>(json) else { return };
        let inner = |inner: Option<Inner>| inner.and_then(|inner| inner.usage);
        let reported = [reply.usage, inner(reply.response), inner(reply.message)].into_iter().flatten();
        for usage in reported.filter(Usage::is_reported) {
            let prompt = usage.prompt_tokens.unwrap_or_default()
                + usage.cache_creation_input_tokens.unwrap_or_default()
                + usage.cache_read_input_tokens.unwrap_or_default();
            // Some servers report with every event, and some in parts.
            let found = self.found.get_or_insert_default();
            found.prompt = found.prompt.max(prompt);
            found.completion = found.completion.max(usage.completion_tokens.unwrap_or_default());
        }
    }
}

/// Returns the size of all texts in a value.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members.values().map(text_bytes).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content_type: &'static str, reply: &str) -> Option<Tokens> {
        let mut whole = UsageReader::new(Some(&HeaderValue::from_static(content_type)));
        whole.push(reply.as_bytes());
        let mut bytes = UsageReader::new(Some(&HeaderValue::from_static(content_type)));
        reply.as_bytes().chunks(1).for_each(|byte| bytes.push(byte));
        let found = whole.reported();
        assert_eq!(bytes.reported(), found, "pieces do not matter");
        found
    }

    #[test]
    fn usage_is_read_from_replies_of_every_protocol() {
        const SSE: &str = "text/event-stream; charset=utf-8";
        for (kind, reply, expected) in [
            ("application/json", r#"{"usage":{"prompt_tokens":7,"completion_tokens":3}}"#, (7, 3)),
            ("application/json", r#"{"usage":{"input_tokens":7,"output_tokens":3}}"#, (7, 3)),
            ("application/json", r#"{"usage":{"prompt_tokens":7,"total_tokens":7}}"#, (7, 0)),
            (
                SSE,
                "data: {\"choices\":[],\"usage\":null}\n\ndata: \
                 {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\
                 \"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
                (9, 2),
            ),
            (
                SSE,
                "event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":\
                 {\"input_tokens\":5,\"output_tokens\":6}}}\r\n\r\n",
                (5, 6),
            ),
            (
                SSE,
                "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4,\
                 \"cache_read_input_tokens\":10,\"output_tokens\":1}}}\n\n\
                 data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":8}}",
                (14, 8),
            ),
        ] {
            let (prompt, completion) = expected;
            assert_eq!(read(kind, reply), Some(Tokens { prompt, completion }), "{reply}");
        }
        for (kind, reply) in
            [(SSE, "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), ("application/json", "not JSON")]
        {
            assert_eq!(read(kind, reply), None);
        }
    }

    /// A reply without usage is estimated by what a model wrote.
    #[test]
    fn documents_without_usage_are_estimated_by_their_text() {
        let text = "word ".repeat(800);
        let chat = format!(r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"id":"chatcmpl-123"}}"#);
        let call = format!(r#"{{"output":[{{"arguments":"{text}"}}],"usage":null}}"#);
        let message = format!(r#"{{"content":[{{"text":"{text}"}}],"usage":{{}}}}"#);
        let broken_off = format!(r#"{{"choices":[{{"message":{{"content":"{text}"#);
        for reply in [chat, call, message, broken_off] {
            let mut reader = UsageReader::new(Some(&HeaderValue::from_static("application/json")));
            reply.as_bytes().chunks(7).for_each(|piece| reader.push(piece));
            assert_eq!(reader.reported(), None, "{reply}");
            assert!((1_000..1_010).contains(&reader.estimated_completion()), "{reply}");
        }
        let mut long = UsageReader::new(None);
        (0..2).for_each(|_| long.push(&vec![b' '; MAX_BYTES]));
        assert_eq!((long.reported(), long.estimated_completion()), (None, 2 << 20));
    }

    #[test]
    fn last_event_of_a_stream_is_known_in_every_protocol() {
        for (before, last) in [
            ("data: {\"choices\":[{\"delta\":{\"content\":\"[DONE]\"}}]}\n\ndata: [DO", "NE]\n\n"),
            ("event: response.created\ndata: {}\n\nevent: response.completed\ndata: {}", "\n\n"),
            ("event: message_delta\r\ndata: {}\r\n\r\nevent: message_stop\r\n", "data: {}\r\n\r\n"),
        ] {
            let mut reader = UsageReader::new(Some(&HeaderValue::from_static("text/event-stream")));
            reader.push(before.as_bytes());
            assert!(!reader.is_done(), "{before}");
            reader.push(last.as_bytes());
            assert!(reader.is_done(), "{before}{last}");
        }
    }

    #[test]
    fn memory_is_bounded_however_long_a_line_is() {
        let mut reader = UsageReader::new(Some(&HeaderValue::from_static("text/event-stream")));
        let line = vec![b'x'; MAX_BYTES];
        for _ in 0..10 {
            reader.push(&line);
        }
        assert!(reader.buffer.capacity() <= MAX_BYTES * 2);
        reader.push(b"\ndata: {\"usage\":{\"prompt_tokens\":1}}\n");
        assert_eq!(reader.reported(), Some(Tokens { prompt: 1, completion: 0 }));
        assert_eq!(reader.estimated_completion(), 1);
    }
}
