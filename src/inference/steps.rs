//! Typed steps: a turn as one JSON object that the server constrains, for models that write native tool calls
//! badly. A step is a tool call, a question or the answer.
//!
//! There is no field for thoughts: a small model fills it until its limit.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use schema::Form;
use serde::{Serialize, Serializer, de::IgnoredAny, ser::SerializeMap};
use serde_json::{Map, Value, json};
use subjects::{Message, ToolCall};

use super::{ASK_USER, OBJECTION, Request, known_ids::KnownIds, request::Function, wire::WireMessage};
use crate::context::{quote_lines, single_line};

/// Name of the schema in the request.
pub(super) const NAME: &str = "step";
/// The request is repeated after every result, up to this length: small models forget what is left of it.
const MAX_REPEATED_CHARS: usize = 300;
/// Asks again after a reply that is no step.
pub(super) const REPAIR: &str =
    "That was not one step. Reply with one JSON object: a tool with its arguments, or the answer.";

/// Asks again after a reply that was cut off.
pub(super) const TOO_LONG: &str = "That was too long and was cut off. Reply with one shorter step.";

/// A step of the model.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Call(ToolCall),
    Answer(String),
}

/// Appends the tools and how a step is written to the system message.
pub(super) fn describe(out: &mut String, request: &Request<'_>) {
    out.push_str("# Steps\n\nReply with one step, a JSON object:\n");
    let tools: Vec<&Arc<Function>> = offered(request).collect();
    if !tools.is_empty() {
        out.push_str("- {\"tool\": NAME, \"arguments\": {...}} calls a tool\n");
    }
    if asks(request) {
        out.push_str("- {\"ask\": TEXT} asks the person, when two readings would lead to different work\n");
    }
    out.push_str("- {\"answer\": TEXT} tells the person the result, when nothing is left to do or to read\n");
    if !tools.is_empty() {
        out.push_str(
            "\nYou know of tasks only what a tool has returned: read before you answer.\n\nTools:\n",
        );
    }
    for tool in tools {
        // What an upstream server says about its tools may not begin a line of its own here.
        let described = format!("{} {}: {}", tool.name, tool.schema, tool.description);
        // Writing to a string cannot fail.
        let _written = writeln!(out, "- {}", single_line(&described));
    }
}

/// Returns the schema of the next step.
pub(super) fn schema(request: &Request<'_>, form: Form, refused: &[String]) -> Value {
    let mut branches = Vec::new();
    // After two failures in a row a third call would fail too: it is time to ask or to answer.
    if request.may_call && failures_in_a_row(request.messages) < 2 {
        let known_ids = KnownIds::collect(request);
        let repeated = repeated_call(request.messages);
        let is_offered = |tool: &&Arc<Function>| {
            !refused.contains(&tool.name) && repeated.is_none_or(|call| call.name != tool.name)
        };
        for tool in offered(request).filter(is_offered) {
            branches.push(branch(&[
                ("tool", json!({ "type": "string", "enum": [tool.name] })),
                ("arguments", known_ids.restrict(&tool.schema).write(form)),
            ]));
        }
    }
    if request.may_call && asks(request) && !has_changed(request) {
        branches.push(branch(&[("ask", json!({ "type": "string" }))]));
    }
    branches.push(branch(&[("answer", json!({ "type": "string" }))]));
    let any = json!({ "anyOf": branches });
    // A strict schema must be an object.
    if form.strict { branch(&[("step", any)]) } else { any }
}

fn branch(properties: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": names, "additionalProperties": false })
}

/// A schema in which required properties come first, in their order: a grammar takes the order from the
/// schema, and a model cannot write arguments for a tool that it has not chosen yet.
pub(super) struct Ordered<'s>(pub(super) &'s Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let object = match self.0 {
            Value::Object(object) => object,
            Value::Array(items) => return serializer.collect_seq(items.iter().map(Ordered)),
            value => return value.serialize(serializer),
        };
        let required = object.get("required").and_then(Value::as_array);
        let mut map = serializer.serialize_map(Some(object.len()))?;
        for (keyword, value) in object {
            match (value, required) {
                (Value::Object(properties), Some(required)) if keyword == "properties" => {
                    map.serialize_entry(keyword, &OrderedProperties { properties, required })?;
                }
                _ => map.serialize_entry(keyword, &Ordered(value))?,
            }
        }
        map.end()
    }
}

struct OrderedProperties<'s> {
    properties: &'s Map<String, Value>,
    required: &'s [Value],
}

impl Serialize for OrderedProperties<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.required.iter().filter_map(Value::as_str);
        let first = names.filter_map(|name| self.properties.get_key_value(name));
        let is_required = |name: &String| self.required.iter().any(|required| required == name.as_str());
        let rest = self.properties.iter().filter(|(name, _)| !is_required(name));
        serializer.collect_map(first.chain(rest).map(|(name, schema)| (name, Ordered(schema))))
    }
}

/// Returns the tools of the gateway and the worker, except the question, which has a step of its own.
fn offered<'r>(request: &'r Request<'_>) -> impl Iterator<Item = &'r Arc<Function>> {
    request.tools.iter().filter(|tool| tool.name != ASK_USER)
}

fn asks(request: &Request<'_>) -> bool {
    request.tools.iter().any(|tool| tool.name == ASK_USER)
}

/// Returns what followed the last message of the user. What earlier requests led to decides nothing now.
fn since_asked(messages: &[Message]) -> &[Message] {
    let is_asked =
        |message: &Message| matches!(message, Message::User { content } if !content.starts_with(OBJECTION));
    let asked = messages.iter().rposition(is_asked);
    &messages[asked.map_or(0, |asked| asked + 1)..]
}

/// Returns how many of the last results are errors.
fn failures_in_a_row(messages: &[Message]) -> usize {
    let results = since_asked(messages).iter().rev().filter_map(|message| match message {
        Message::Tool { content, .. } => Some(content),
        Message::User { .. } | Message::Assistant { .. } => None,
    });
    results.take_while(|content| content.starts_with("Error: ")).count()
}

/// Returns whether a call has changed something. The turn is then finished or reported without a question.
fn has_changed(request: &Request<'_>) -> bool {
    since_asked(request.messages).iter().any(|message| match message {
        Message::Tool { name, content, .. } => {
            let tool = request.tools.iter().find(|tool| tool.name == *name);
            tool.is_some_and(|tool| tool.has_effect) && !content.starts_with("Error: ")
        }
        Message::User { .. } | Message::Assistant { .. } => false,
    })
}

/// Returns the last call if the call before it was the same: small models go in circles.
fn repeated_call(messages: &[Message]) -> Option<&ToolCall> {
    let mut calls = since_asked(messages).iter().rev().filter_map(|message| match message {
        Message::Assistant { calls, .. } => calls.last(),
        Message::User { .. } | Message::Tool { .. } => None,
    });
    let (last, before) = (calls.next()?, calls.next()?);
    (last.name == before.name && last.arguments == before.arguments).then_some(last)
}

/// Returns a message as the typed conversation has it: calls and their results are plain text. `asked` is the
/// last message of the user before it.
pub(super) fn to_wire<'m>(message: &'m Message, asked: &str) -> WireMessage<'m> {
    match message {
        Message::User { content } => WireMessage::user(content),
        Message::Assistant { content, calls } if calls.is_empty() => {
            WireMessage::assistant(json!({ "answer": content }).to_string())
        }
        Message::Assistant { calls, .. } => {
            WireMessage::assistant(calls.iter().map(write_call).collect::<Vec<_>>().join("\n"))
        }
        Message::Tool { name, content, .. } => {
            let asked: String = asked.chars().take(MAX_REPEATED_CHARS).collect();
            let content = quote_unless_json(content);
            WireMessage::user(format!(
                "Result of {name}:\n{content}\n\nAsked for was: {asked}\nIf all of that is done, give the \
                 answer; otherwise the next step."
            ))
        }
    }
}

/// Quotes a result, which here is part of a message of the user, so that no line of it can pose as the
/// request. JSON cannot: a line break within a text is escaped in it.
fn quote_unless_json(content: &str) -> Cow<'_, str> {
    if serde_json::from_str::<IgnoredAny>(content).is_ok() {
        return Cow::Borrowed(content);
    }
    Cow::Owned(quote_lines(content).trim_end().to_owned())
}

fn write_call(call: &ToolCall) -> String {
    let name = Value::from(call.name.as_str());
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    format!("{{\"tool\": {name}, \"arguments\": {arguments}}}")
}

/// Parses a reply in the form in which it was asked for. A step is the whole reply: a model that quotes one
/// in a sentence may say what it refuses to do, and what follows a step would be lost.
pub(super) fn parse(content: &str, request: &Request<'_>, form: Form) -> Result<Step, String> {
    let object = only_object(after_thoughts(content)).ok_or("it is not one JSON object and nothing else")?;
    let object = match object.get("step") {
        Some(Value::Object(step)) => step.clone(),
        _ => object,
    };
    if object.contains_key("tool") && (object.contains_key("answer") || object.contains_key("ask")) {
        return Err("it is both a call and an answer".to_owned());
    }
    let question = object.get("ask").and_then(Value::as_str).filter(|question| !question.trim().is_empty());
    let answer = object.get("answer").filter(|answer| !answer.is_null());
    match (answer, question) {
        (Some(_), Some(_)) => return Err("it is both a question and an answer".to_owned()),
        (Some(Value::String(answer)), None) if answer.trim().is_empty() => {
            return Err("the answer is empty".to_owned());
        }
        (Some(Value::String(answer)), None) => return Ok(Step::Answer(answer.clone())),
        (Some(answer), None) => return Ok(Step::Answer(answer.to_string())),
        (None, _) => {}
    }
    let id = format!("step_{}", request.messages.len());
    if let Some(question) = question {
        let arguments = json!({ "question": question }).to_string();
        return Ok(Step::Call(ToolCall { id, name: ASK_USER.to_owned(), arguments }));
    }
    let name = object.get("tool").and_then(Value::as_str).ok_or("it names no tool and has no answer")?;
    let arguments = object.get("arguments").cloned().unwrap_or_else(|| json!({}));
    let tool = request.tools.iter().find(|tool| tool.name == name);
    let arguments = match tool.filter(|_| form.strict) {
        Some(tool) => tool.schema.restore(arguments),
        None => arguments,
    };
    Ok(Step::Call(ToolCall { id, name: name.to_owned(), arguments: arguments.to_string() }))
}

/// Returns what follows the thoughts that some models write first. A reply that begins with JSON or
/// with the mark of a call has none, whatever its texts say.
pub(crate) fn after_thoughts(content: &str) -> &str {
    let start = content.trim_start();
    if start.starts_with(['{', '[', '`', '<']) && !start.starts_with("<think>") {
        return content;
    }
    content.split_once("</think>").map_or(content, |(_, rest)| rest)
}

/// Returns the first JSON object in a text, which a server without schemas may have wrapped in prose. An
/// object that is cut off ends the search: what it contains is not a step.
pub(super) fn first_object(text: &str) -> Option<Map<String, Value>> {
    for (from, _) in text.match_indices('{') {
        let mut values = serde_json::Deserializer::from_str(&text[from..]).into_iter::<Map<String, Value>>();
        match values.next()? {
            Ok(object) => return Some(object),
            Err(error) if error.is_eof() => return None,
            Err(_) => {}
        }
    }
    None
}

/// Returns whether a text says something, and not in the form of data.
pub(super) fn is_prose(content: &str) -> bool {
    let said = after_thoughts(content).trim_start();
    !says_nothing(content) && !said.starts_with(['{', '[', '<'])
}

/// Returns whether a reply is empty, but for thoughts.
pub(super) fn says_nothing(content: &str) -> bool {
    let said = after_thoughts(content).trim();
    said.is_empty() || said.starts_with("<think>")
}

/// Returns the object if a text is one JSON object and nothing else, but for a code fence around it.
fn only_object(text: &str) -> Option<Map<String, Value>> {
    let text = text.trim();
    let fenced = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let inner = fenced.map_or(text, |text| text.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
    serde_json::from_str(inner).ok()
}

/// Returns whether a text is one JSON object and nothing else.
pub(super) fn is_object(content: &str) -> bool {
    only_object(after_thoughts(content)).is_some()
}

/// Returns whether a text is the beginning of a JSON object and ends before the object does.
pub(super) fn is_unclosed(content: &str) -> bool {
    let said = after_thoughts(content).trim_start();
    said.starts_with('{') && serde_json::from_str::<IgnoredAny>(said).is_err_and(|error| error.is_eof())
}

/// Finds the text of the answer in the beginning of a step, while it is streamed.
#[derive(Debug, Default)]
pub(super) struct AnswerStream {
    read: String,
    sent: usize,
}

impl AnswerStream {
    /// Adds a piece of the reply and returns what it adds to the answer.
    pub(super) fn push(&mut self, piece: &str) -> String {
        self.read.push_str(piece);
        let answer = begun_answer(&self.read).map(|(answer, _)| answer).unwrap_or_default();
        let new = answer.get(self.sent..).unwrap_or_default().to_owned();
        self.sent += new.len();
        new
    }
}

/// Returns the answer in a step that is cut off; `None` if the step is not an answer, or says more than that.
pub(super) fn partial_answer(read: &str) -> Option<String> {
    let (answer, rest) = begun_answer(read)?;
    rest.trim().is_empty().then_some(answer)
}

/// Returns the answer as far as it has been read, and what follows it; `None` if the step is not an answer.
fn begun_answer(read: &str) -> Option<(String, &str)> {
    let start = read.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"answer\"")?;
    let text = start.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    let (mut end, mut rest) = (0, "");
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => {
                (end, rest) = (index, text.get(index + 1..)?);
                break;
            }
            '\\' => {
                let Some((escaped, kind)) = characters.next() else { break };
                let digits = if kind == 'u' { 4 } else { 0 };
                if text.len() < escaped + kind.len_utf8() + digits {
                    break;
                }
                for _ in 0..digits {
                    characters.next();
                }
                end = escaped + kind.len_utf8() + digits;
            }
            _ => end = index + character.len_utf8(),
        }
    }
    // Half of a surrogate pair cannot be decoded yet; the other half comes with the next piece.
    let answer = serde_json::from_str(&format!("\"{}\"", text.get(..end)?)).ok()?;
    Some((answer, rest))
}

#[cfg(test)]
mod tests;
