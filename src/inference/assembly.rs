//! Assembles a reply from the fragments of a stream. Servers that claim compatibility omit different fields,
//! so missing fields are made up for where possible, and only needed ones are required.

use serde_json::{Map, Value};
use subjects::ToolCall;

use super::{Finish, Tokens, steps};

/// Fields in which servers stream the reasoning of a model before its answer.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Maximum number of calls in one reply.
const MAX_CALLS: usize = 64;

/// Why a reply that the provider's filter ended cannot be used: it is not whole, and its calls may be what
/// was filtered.
pub(super) const FILTERED: &str = "the provider's filter ended it (finish_reason `content_filter`)";

/// Finish reasons by which servers say that a reply is whole, in lower case.
const STOP_REASONS: [&str; 9] = [
    "stop",
    "tool_calls",
    "function_call",
    "tool_use",
    "end_turn",
    "stop_sequence",
    "eos",
    "eos_token",
    "complete",
];
/// Finish reasons of a reply that reached the limit of its tokens.
const LENGTH_REASONS: [&str; 4] = ["length", "max_tokens", "model_length", "max_output_tokens"];
/// Finish reasons of a reply that was filtered.
const FILTER_REASONS: [&str; 8] = [
    "content_filter",
    "content_filtered",
    "safety",
    "recitation",
    "prohibited_content",
    "blocklist",
    "spii",
    "refusal",
];

#[derive(Debug)]
pub(super) struct Assembly {
    content: String,
    calls: Vec<ToolCall>,
    /// The server's index of each call, to which fragments refer.
    numbers: Vec<u64>,
    finish: Option<Finish>,
    /// Whether no part of the reply came after the finish reason.
    ends_with_finish: bool,
    /// Whether the last event was one that servers send after the reply alone.
    has_ended: bool,
    tokens: Option<Tokens>,
    /// How many events reported the usage.
    usage_reports: u32,
    /// The last call whose name came again, without arguments, after all of its arguments.
    repeated: Option<usize>,
    bytes: usize,
    max_bytes: usize,
}

/// The parts that a fragment added to the reply.
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
    /// If the reply was cut, the last one may be incomplete.
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
            ends_with_finish: false,
            has_ended: false,
            tokens: None,
            usage_reports: 0,
            repeated: None,
            bytes: 0,
            max_bytes,
        }
    }

    pub(super) fn content(&self) -> &str {
        &self.content
    }

    /// Returns whether all of the reply is there: it says something, and has ended with a finish reason. Only
    /// its usage may follow.
    pub(super) fn is_complete(&self) -> bool {
        self.ends_with_finish && !(self.content.is_empty() && self.calls.is_empty())
    }

    /// Adds one event of the stream, or a whole reply from a server that does not stream. Returns the error
    /// message that the server sent, if the event is one, or why the reply is not whole.
    pub(super) fn push(&mut self, chunk: &Value) -> Result<Pushed, String> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str);
            return Err(message.map_or_else(|| error.to_string(), str::to_owned));
        }
        let usage = chunk.get("usage").filter(|usage| usage.is_object());
        if let Some(usage) = usage {
            self.usage_reports = self.usage_reports.saturating_add(1);
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
            // Some servers report the usage in every event, but without a choice after the last one only.
            self.has_ended |= usage.is_some();
            return Ok(Pushed::Empty);
        };
        let is_document =
            choice.get("delta").is_none() && choice.get("message").is_some_and(Value::is_object);
        self.has_ended = is_document && usage.is_some();
        let part = choice.get("delta").or_else(|| choice.get("message")).unwrap_or(&Value::Null);
        let (before, bytes_before) = (self.content.len(), self.bytes);
        let mut full = false;
        if let Some(text) = part.get("content").and_then(Value::as_str) {
            full |= self.push_text(text);
        }
        for fragment in part.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            full |= self.push_call(fragment, is_document);
        }
        if full {
            self.finish = Some(Finish::CutShort);
            return Ok(Pushed::LimitReached);
        }
        // Some servers send an empty reason instead of null.
        let finish = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
        if let Some(reason) = finish {
            self.finish = Some(read_finish_reason(reason)?);
        }
        let added = self.content.len() - before;
        let has_more = self.bytes > bytes_before
            || finish.is_some()
            || REASONING_FIELDS.iter().any(|name| has_text(part, name));
        self.ends_with_finish = finish.is_some() || (self.ends_with_finish && added == 0 && !has_more);
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

    /// Adds a fragment of a call; each one of a document is a call of its own. Returns whether a limit was
    /// exceeded.
    fn push_call(&mut self, fragment: &Value, is_document: bool) -> bool {
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
            _ if is_document => None,
            // Some servers give all calls the index 0 and distinguish them by id only.
            Some(number) => self.numbers.iter().rposition(|known| *known == number).filter(|position| {
                id.is_empty() || self.calls.get(*position).is_some_and(|call| call.id == id)
            }),
            // Without an index, a new id or a name begins a call and everything else continues the last one.
            None if id.is_empty() && name.is_empty() => self.calls.len().checked_sub(1),
            None => self.calls.iter().rposition(|call| !id.is_empty() && call.id == id),
        };
        let was_repeated = known.is_some() && self.repeated == known && !arguments.trim().is_empty();
        let position = known;
        let known = known.and_then(|position| self.calls.get_mut(position));
        if let Some(call) = &known
            && call.name == name
            && arguments.trim().is_empty()
            && is_whole(call)
        {
            // The end of this call, or the beginning of another one of the same tool: what follows tells.
            self.repeated = position;
            return false;
        }
        match known.filter(|call| !was_repeated && !begins_another(call, &name, &arguments)) {
            Some(call) => {
                // A name is sent whole, and some servers repeat it; arguments are sent in pieces.
                if call.name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(&arguments);
                false
            }
            None => {
                let name = match self.repeated.take().and_then(|position| self.calls.get(position)) {
                    Some(call) if was_repeated && name.is_empty() => call.name.clone(),
                    Some(_) | None => name,
                };
                let position = self.calls.len();
                let id = if id.is_empty() { format!("call_{position}") } else { id };
                self.numbers.push(number.unwrap_or(u64::MAX - position as u64));
                self.calls.push(ToolCall { id, name, arguments });
                self.calls.len() > MAX_CALLS
            }
        }
    }

    /// Records that the server ended the stream itself. Some servers send no finish reason, and the usage
    /// beside the last choice. Of those that report it in every event, an aborted reply looks the same.
    pub(super) fn note_end(&mut self) {
        self.has_ended |= self.usage_reports == 1;
    }

    /// Returns the reply, or `None` if the stream ended before the reply was complete.
    pub(super) fn finish(self) -> Option<Assembled> {
        // Some servers send no finish reason, but their last event tells the usage.
        let finish = self.finish.or_else(|| self.has_ended.then_some(Finish::Stop))?;
        let finish = match finish {
            // Some servers say `stop` also if the reply is cut.
            Finish::Stop if steps::is_unclosed(&self.content) => Finish::Length,
            // Small models write blanks after an object until their limit; it is whole.
            Finish::Length if self.calls.is_empty() && steps::is_object(&self.content) => Finish::Stop,
            finish => finish,
        };
        Some(Assembled { content: self.content, calls: self.calls, finish, tokens: self.tokens })
    }
}

/// Returns how a reply ended. The error says why it is not whole.
fn read_finish_reason(reason: &str) -> Result<Finish, String> {
    let lower = reason.to_lowercase();
    if STOP_REASONS.contains(&lower.as_str()) {
        Ok(Finish::Stop)
    } else if LENGTH_REASONS.contains(&lower.as_str()) {
        Ok(Finish::Length)
    } else if FILTER_REASONS.contains(&lower.as_str()) {
        Err(FILTERED.to_owned())
    } else {
        Err(format!("the server ended the reply with the finish_reason `{reason}`"))
    }
}

/// Returns whether a fragment with this name and these arguments begins another call than the one that its
/// index or id refers to. Some servers give all calls the same, and send each of them whole; others repeat
/// the name in each fragment of one call.
fn begins_another(known: &ToolCall, name: &str, arguments: &str) -> bool {
    if name.is_empty() || known.name.is_empty() {
        return false;
    }
    known.name != name || (!arguments.trim().is_empty() && is_whole(known))
}

/// Returns whether a call has all of its arguments.
fn is_whole(call: &ToolCall) -> bool {
    let arguments = call.arguments.trim_end();
    arguments.ends_with('}') && serde_json::from_str::<Map<String, Value>>(arguments).is_ok()
}

fn has_text(part: &Value, name: &str) -> bool {
    part.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
