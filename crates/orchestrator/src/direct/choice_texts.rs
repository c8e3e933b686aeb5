//! The texts of one choice of a streamed completion: all strings of its deltas, whatever their names.
//!
//! A secret may be split over any number of chunks, so each text has a redactor that holds back what may
//! become one. What is held back is sent before the choice ends, and before another text of it begins, so
//! that clients get texts in their order.

use std::collections::BTreeMap;

use secrets::{StreamRedactor, redact_by_kind};
use serde_json::{Map, Value};

use super::redaction::{drop_tokens, redact};

/// The members of a choice that arrive in pieces.
const STREAMED: [&str; 2] = ["delta", "text"];
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
/// Members that say why a choice ended, and which it is.
const ENDS: [&str; 4] = ["finish_reason", "index", "native_finish_reason", "stop_reason"];
/// How much of an exact member is kept, to read what follows it.
const MAX_EXACT_BYTES: usize = 256;
const SECRET: &str = "[redacted:secret]";

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
    /// What exact members were up to now.
    exact: BTreeMap<Path, String>,
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

/// What became of the texts of a chunk.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// What is sent before the chunk: members of a choice, each for a chunk of its own.
    pub(super) before: Vec<Map<String, Value>>,
    pub(super) is_changed: bool,
}

impl ChoiceTexts {
    /// Replaces secrets in a choice of a chunk. `is_last` means that the choice ends with it.
    pub(super) fn pass(&mut self, choice: &mut Map<String, Value>, is_last: bool) -> Passed {
        self.chunk += 1;
        self.has_begun = false;
        let mut is_changed = false;
        for (name, member) in choice.iter_mut() {
            is_changed |= drop_tokens(name, member);
            if STREAMED.contains(&name.as_str()) {
                is_changed |= self.pass_value(member, &mut vec![Step::Member(name.clone())], is_last);
            } else if !ENDS.contains(&name.as_str()) {
                is_changed |= redact_whole(member);
            }
        }
        let before = if is_last || self.has_begun { self.drain_older() } else { Vec::new() };
        Passed { before, is_changed }
    }

    /// Returns what is held back of all texts, as [`Passed::before`] has it.
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

    /// Replaces secrets in a value; returns whether it changed.
    fn pass_value(&mut self, value: &mut Value, path: &mut Path, is_last: bool) -> bool {
        let mut is_changed = false;
        match value {
            Value::String(text) => return self.pass_text(text, path, is_last),
            Value::Array(items) => {
                for (place, item) in items.iter_mut().enumerate() {
                    let index = item.get("index").and_then(Value::as_u64);
                    path.push(index.map_or(Step::Item(place), Step::Indexed));
                    is_changed |= self.pass_value(item, path, is_last);
                    path.pop();
                }
            }
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    is_changed |= drop_tokens(name, member);
                    if name == WHOLE {
                        is_changed |= redact_whole(member);
                        continue;
                    }
                    path.push(Step::Member(name.clone()));
                    is_changed |= self.pass_value(member, path, is_last);
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
        is_changed
    }

    fn pass_text(&mut self, text: &mut String, path: &[Step], is_last: bool) -> bool {
        if matches!(path.last(), Some(Step::Member(name)) if EXACT.contains(&name.as_str())) {
            return self.pass_exact(text, path);
        }
        if text.is_empty() {
            return false;
        }
        self.has_begun |= !self.texts.contains_key(path);
        let known = self.texts.entry(path.to_vec()).or_default();
        known.chunk = self.chunk;
        let mut passed = known.redactor.push(text);
        if is_last {
            passed.push_str(&known.redactor.flush());
        }
        let is_changed = passed != *text;
        *text = passed;
        is_changed
    }

    /// Replaces an exact member that is a secret, or becomes one with what it was before. Some servers repeat
    /// it in each chunk.
    fn pass_exact(&mut self, text: &mut String, path: &[Step]) -> bool {
        let known = self.exact.entry(path.to_vec()).or_default();
        if known == text {
            return false;
        }
        let whole = format!("{known}{text}");
        let is_secret = redact_by_kind(&whole) != whole;
        let from = whole.floor_char_boundary(whole.len().saturating_sub(MAX_EXACT_BYTES));
        whole[from..].clone_into(known);
        if is_secret {
            let alone = redact_by_kind(text).into_owned();
            *text = if alone == *text { SECRET.to_owned() } else { alone };
        }
        is_secret
    }
}

/// Replaces secrets in a value that arrives as a whole; returns whether it changed.
fn redact_whole(value: &mut Value) -> bool {
    if matches!(value, Value::Null | Value::Bool(_) | Value::Number(_)) {
        return false;
    }
    let before = value.clone();
    redact(value);
    before != *value
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
