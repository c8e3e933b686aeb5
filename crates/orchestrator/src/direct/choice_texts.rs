//! The texts of one choice of a streamed completion: all strings of its deltas, whatever their names.
//!
//! A secret may be split over any number of chunks, so each text has a redactor that holds back what may
//! become one. What is held back is sent before the choice ends, and before another text of it begins, so
//! that clients get texts in their order.

use std::collections::BTreeMap;

use secrets::{StreamRedactor, redact_by_kind};
use serde_json::{Map, Value};

use super::{
    base64::{is_base64, redact_string},
    redaction::{SECRET, drop_all_tokens, drop_tokens, redact_named, redact_whole},
};

/// The members of a choice that arrive in pieces.
const STREAMED: [&str; 3] = ["delta", "message", "text"];
/// Members of deltas that have an exact meaning. They are never held back: clients take each as a whole.
const EXACT: [&str; 12] = [
    "call_id",
    "data",
    "encrypted_content",
    "format",
    "id",
    "name",
    "object",
    "role",
    "signature",
    "thought_signature",
    "tool_call_id",
    "type",
];
/// Members whose objects arrive as a whole.
const WHOLE: &str = "annotations";
/// How much of an exact member is kept, to read what follows it.
const MAX_EXACT_BYTES: usize = 256;

/// Where a string is in a choice.
type Path = Vec<Step>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Member(String),
    /// The item of an array with this `index`.
    Indexed(u64),
    /// The item of an array at this place.
    Item(usize),
}

/// The texts of a choice up to now.
#[derive(Debug, Default)]
pub(super) struct ChoiceTexts {
    texts: BTreeMap<Path, Text>,
    /// The values of exact members so far.
    exact: BTreeMap<Path, Exact>,
    /// The `type` of each object that has one. Clients need it with the rest of a text.
    types: BTreeMap<Path, String>,
    /// The number of the last chunk.
    chunk: u64,
    /// Whether a text began in the last chunk.
    has_begun: bool,
}

#[derive(Debug, Default)]
struct Text {
    redactor: StreamRedactor,
    /// The last chunk that had some of it.
    chunk: u64,
}

/// A member that is passed on as a whole.
#[derive(Debug, Default)]
struct Exact {
    /// Its last value, and the redacted one.
    last: Option<(String, String)>,
    /// The end of all that it was.
    tail: String,
}

impl ChoiceTexts {
    /// Replaces secrets in a choice of a chunk. `is_last` means that the choice ends with it. Returns what is
    /// sent before the chunk: members of the choice, each for a chunk of its own.
    pub(super) fn pass(&mut self, choice: &mut Map<String, Value>, is_last: bool) -> Vec<Map<String, Value>> {
        self.chunk += 1;
        self.has_begun = false;
        for (name, member) in choice.iter_mut() {
            drop_tokens(name, member);
            let mut path = vec![Step::Member(name.clone())];
            if STREAMED.contains(&name.as_str()) {
                redact_named(member);
                self.pass_value(member, &mut path, is_last);
            } else {
                redact_whole(member);
                self.pass_repeated(member, &mut path);
            }
        }
        if is_last || self.has_begun { self.drain_older() } else { Vec::new() }
    }

    /// Replaces secrets in members that belong to no choice. Each arrives as a whole, in one chunk or in all.
    pub(super) fn pass_others(&mut self, others: &mut Value) {
        drop_all_tokens(others);
        redact_whole(others);
        self.pass_repeated(others, &mut Vec::new());
    }

    /// Returns what is held back of all texts, as [`Self::pass`] does.
    pub(super) fn drain(&mut self) -> Vec<Map<String, Value>> {
        self.chunk += 1;
        self.drain_older()
    }

    /// Returns what is held back of the texts of which the last chunk had nothing.
    fn drain_older(&mut self) -> Vec<Map<String, Value>> {
        let mut drained = Vec::new();
        for (path, text) in &mut self.texts {
            if text.chunk == self.chunk {
                continue;
            }
            let left = text.redactor.flush();
            if !left.is_empty()
                && let Value::Object(members) = put_at(path, left, &self.types)
            {
                drained.push(members);
            }
        }
        drained
    }

    /// Replaces secrets in a value.
    fn pass_value(&mut self, value: &mut Value, path: &mut Path, is_last: bool) {
        match value {
            Value::String(text) => self.pass_text(text, path, is_last),
            Value::Array(items) => {
                for (place, item) in items.iter_mut().enumerate() {
                    let index = item.get("index").and_then(Value::as_u64);
                    path.push(index.map_or(Step::Item(place), Step::Indexed));
                    self.pass_value(item, path, is_last);
                    path.pop();
                }
            }
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    drop_tokens(name, member);
                    if name == WHOLE {
                        redact_whole(member);
                        continue;
                    }
                    path.push(Step::Member(name.clone()));
                    self.pass_value(member, path, is_last);
                    path.pop();
                }
                let kind = members.get("type").and_then(Value::as_str);
                if let Some(kind) = kind
                    && self.types.get(path.as_slice()).is_none_or(|known| known != kind)
                {
                    self.types.insert(path.clone(), kind.to_owned());
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces the strings of a value that become a secret with what they were before.
    fn pass_repeated(&mut self, value: &mut Value, path: &mut Path) {
        match value {
            Value::String(text) => self.pass_exact(text, path),
            Value::Array(items) => {
                for (place, item) in items.iter_mut().enumerate() {
                    path.push(Step::Item(place));
                    self.pass_repeated(item, path);
                    path.pop();
                }
            }
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    path.push(Step::Member(name.clone()));
                    self.pass_repeated(member, path);
                    path.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn pass_text(&mut self, text: &mut String, path: &[Step], is_last: bool) {
        if matches!(path.last(), Some(Step::Member(name)) if EXACT.contains(&name.as_str())) {
            return self.pass_exact(text, path);
        }
        if text.is_empty() {
            return;
        }
        // A picture arrives as a whole, and not within a text.
        if !self.texts.contains_key(path) && is_base64(text) {
            *text = redact_string(text).into_owned();
            return;
        }
        self.has_begun |= !self.texts.contains_key(path);
        let known = self.texts.entry(path.to_vec()).or_default();
        known.chunk = self.chunk;
        let mut passed = known.redactor.push(text);
        if is_last {
            passed.push_str(&known.redactor.flush());
        }
        *text = passed;
    }

    /// Replaces an exact member that is a secret, or becomes one with what it was before. Some servers repeat
    /// it in each chunk.
    fn pass_exact(&mut self, text: &mut String, path: &[Step]) {
        if is_base64(text) {
            *text = redact_string(text).into_owned();
            return;
        }
        let known = self.exact.entry(path.to_vec()).or_default();
        let became = match known.last.take() {
            Some((last, became)) if last == *text => became,
            _ => {
                let whole = format!("{}{text}", known.tail);
                let from = whole.floor_char_boundary(whole.len().saturating_sub(MAX_EXACT_BYTES));
                whole[from..].clone_into(&mut known.tail);
                match redact_by_kind(text).into_owned() {
                    alone if alone == *text && redact_by_kind(&whole) != whole => SECRET.to_owned(),
                    alone => alone,
                }
            }
        };
        let last = std::mem::replace(text, became.clone());
        known.last = Some((last, became));
    }
}

/// Returns the members of a choice that have nothing but the rest of a text at its path.
fn put_at(path: &[Step], text: String, types: &BTreeMap<Path, String>) -> Value {
    let mut value = Value::from(text);
    for (depth, step) in path.iter().enumerate().rev() {
        if let Value::Object(members) = &mut value
            && let Some(kind) = types.get(&path[..=depth])
        {
            members.insert("type".to_owned(), kind.as_str().into());
        }
        value = match step {
            Step::Member(name) => Value::Object(Map::from_iter([(name.clone(), value)])),
            Step::Indexed(index) => {
                if let Value::Object(members) = &mut value {
                    members.insert("index".to_owned(), (*index).into());
                }
                Value::Array(vec![value])
            }
            Step::Item(_) => Value::Array(vec![value]),
        };
    }
    value
}

#[cfg(test)]
mod tests;
