//! Reads what a call used from the reply that passes by: a JSON document, or the events of a stream.

use http::HeaderValue;
use serde::Deserialize;

/// A document or event that is longer is not read, and its usage estimated.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;
const MAX_LINE_BYTES: usize = 256 << 10;

/// Tokens, as a provider counts them or as they are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) prompt: u64,
    pub(super) completion: u64,
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

impl UsageReader {
    pub(super) fn new(content_type: Option<&HeaderValue>) -> Self {
        let is_stream = content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        Self { is_stream, found: None, buffer: Vec::new(), skips: false, events: 0 }
    }

    /// Reads a piece of the reply.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if !self.is_stream {
            return self.add(piece, MAX_DOCUMENT_BYTES);
        }
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.add(part, MAX_LINE_BYTES);
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// Returns what the provider reported. `None` if it did not.
    pub(super) fn reported(&mut self) -> Option<Tokens> {
        if self.is_stream {
            self.end_line();
        } else if !self.skips && self.found.is_none() {
            let document = std::mem::take(&mut self.buffer);
            self.read(&document);
        }
        self.found
    }

    /// Returns about how many tokens the reply had so far.
    pub(super) fn estimated_completion(&self) -> u64 {
        self.events
    }

    fn add(&mut self, part: &[u8], limit: usize) {
        self.skips = self.skips || self.buffer.len() + part.len() > limit;
        if self.skips {
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.buffer);
        let is_skipped = std::mem::take(&mut self.skips);
        let Some(data) = line.strip_prefix(b"data:") else { return };
        self.events += 1;
        let names_usage = data.windows(7).any(|word| word == b"\"usage\"");
        if names_usage && !is_skipped {
            self.read(data);
        }
    }

    fn read(&mut self, json: &[u8]) {
        let Ok(reply) = serde_json::from_slice::<Reply>(json) else { return };
        let inner = |inner: Option<Inner>| inner.and_then(|inner| inner.usage);
        for usage in [reply.usage, inner(reply.response), inner(reply.message)].into_iter().flatten() {
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

    #[test]
    fn memory_is_bounded_however_long_a_line_is() {
        let mut reader = UsageReader::new(Some(&HeaderValue::from_static("text/event-stream")));
        let line = vec![b'x'; MAX_LINE_BYTES];
        for _ in 0..10 {
            reader.push(&line);
        }
        assert!(reader.buffer.capacity() <= MAX_LINE_BYTES * 2);
        reader.push(b"\ndata: {\"usage\":{\"prompt_tokens\":1}}\n");
        assert_eq!(reader.reported(), Some(Tokens { prompt: 1, completion: 0 }));
        assert_eq!(reader.estimated_completion(), 1);
    }
}
