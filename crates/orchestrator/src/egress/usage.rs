//! Reads what a call used from the reply that passes by: a JSON document, or the events of a stream.

mod report;

use http::HeaderValue;
use serde_json::Value;

pub(super) use report::Report;

/// A document or an event of a stream that is longer is not read.
const MAX_BYTES: usize = 4 << 20;
/// Bytes of text that are about one token.
pub(super) const BYTES_PER_TOKEN: u64 = 4;
/// The event after the last one of a stream of chat completions.
const DONE: &[u8] = b"[DONE]";
/// The mark that some servers put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
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

    /// Returns the larger of each kind.
    pub(super) fn max(self, other: Self) -> Self {
        let (prompt, completion) = (self.prompt.max(other.prompt), self.completion.max(other.completion));
        Self { prompt, completion }
    }
}

/// Reads the usage of one reply.
#[derive(Debug)]
pub(super) struct UsageReader {
    is_stream: bool,
    report: Report,
    /// The document, or the current line of a stream.
    buffer: Vec<u8>,
    /// The document or the line is too long, and skipped.
    skips: bool,
    /// The line before ended with a carriage return, to which a line feed may belong.
    is_after_return: bool,
    /// The data of the current event, which may have several lines. `None` if it has none yet.
    data: Option<Vec<u8>>,
    /// Events of a stream, each about one token.
    events: u64,
    /// The current event is the last one.
    is_last_event: bool,
    is_done: bool,
    /// Size of what a model wrote into a document; until that is read, of all that has come.
    written_bytes: u64,
}

impl UsageReader {
    pub(super) fn new(content_type: Option<&HeaderValue>) -> Self {
        const STREAM: &[u8] = b"text/event-stream";
        let kind = content_type.map(|kind| kind.as_bytes().trim_ascii_start()).unwrap_or_default();
        let is_stream = kind.get(..STREAM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(STREAM));
        Self {
            is_stream,
            report: Report::default(),
            buffer: Vec::new(),
            skips: false,
            is_after_return: false,
            data: None,
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
        // A line ends with a line feed, a carriage return, or both.
        for part in piece.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_rest_of_line_end = self.is_after_return && part == b"\n";
            self.is_after_return = part.ends_with(b"\r");
            if is_rest_of_line_end {
                continue;
            }
            let line = part.strip_suffix(b"\n").or_else(|| part.strip_suffix(b"\r"));
            self.add(line.unwrap_or(part));
            if line.is_some() {
                self.end_line();
            }
        }
    }

    /// Returns whether the last event of a stream has come. What follows is not waited for.
    pub(super) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns what the provider has reported so far.
    pub(super) fn report(&mut self) -> Report {
        if self.is_stream {
            self.end_line();
            self.end_event();
        } else if !self.buffer.is_empty() {
            self.end_document();
        }
        self.report
    }

    /// Returns about how many tokens the reply has had so far.
    pub(super) fn estimated_completion(&self) -> u64 {
        if self.is_stream { self.events } else { self.written_bytes.div_ceil(BYTES_PER_TOKEN) }
    }

    fn add(&mut self, part: &[u8]) {
        let data_bytes = self.data.as_ref().map_or(0, Vec::len);
        if self.skips || self.buffer.len() + data_bytes + part.len() > MAX_BYTES {
            self.skips = true;
            // It may have been the report.
            self.report.is_unreadable = true;
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(part);
        }
    }

    fn end_document(&mut self) {
        let document = std::mem::take(&mut self.buffer);
        let document = document.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&document);
        self.report.merge(Report::read(document));
        if self.report.completion.is_none()
            && let Ok(reply) = serde_json::from_slice::<Value>(document)
        {
            self.written_bytes = WRITTEN.iter().filter_map(|name| reply.get(name)).map(text_bytes).sum();
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.buffer);
        if std::mem::take(&mut self.skips) {
            return;
        }
        if line.is_empty() {
            return self.end_event();
        }
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line);
        if let Some(name) = line.strip_prefix(b"event:") {
            self.is_last_event = LAST_EVENTS.contains(&name.trim_ascii());
        }
        let Some(data) = line.strip_prefix(b"data:") else { return };
        // Clients may not wait for the end of this event.
        if self.data.is_none() && data.trim_ascii() == DONE {
            self.is_done = true;
            return;
        }
        let event = self.data.get_or_insert_default();
        event.extend_from_slice(data);
        event.push(b'\n');
    }

    fn end_event(&mut self) {
        let Some(data) = self.data.take() else { return };
        self.events += 1;
        if data.windows(7).any(|word| word == b"\"usage\"") {
            self.report.merge(Report::read(&data));
        }
        self.is_done |= self.is_last_event;
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
mod tests;
