//! The `input` of a response: a text, or a list of items.

use serde_json::{Map, Value};
use subjects::{ChatMessage, ChatRole, HandoffId};

use super::{MESSAGE_PREFIX, REASONING_PREFIX, handoff_of};
use crate::{
    answering::fields::{check_last, check_size, content, list, role},
    error::{ApiError, printable},
};

pub(super) const FIELD: &str = "input";

#[derive(Clone, Debug, PartialEq)]
pub(super) enum InputItem {
    /// Without secrets.
    Message(ChatMessage),
    /// Refers to the answer of an earlier turn, instead of repeating it.
    Answer { handoff_id: HandoffId, path: String },
}

/// Reads `instructions` and `input`. The last item is a message of the user.
pub(super) fn read(object: &Map<String, Value>, max: usize) -> Result<Vec<InputItem>, ApiError> {
    let mut items = Vec::new();
    items.extend(instructions(object)?.map(InputItem::Message));
    let mut last_path = FIELD.to_owned();
    match object.get(FIELD) {
        text @ Some(Value::String(_)) => {
            let text = content(text, FIELD)?;
            items.push(InputItem::Message(ChatMessage { role: ChatRole::User, content: text }));
        }
        Some(listed @ Value::Array(_)) => {
            for (index, item) in list(listed, FIELD, max)?.iter().enumerate() {
                last_path = format!("{FIELD}[{index}]");
                items.extend(read_item(item, &last_path)?);
            }
        }
        Some(_) => return Err(ApiError::invalid(FIELD, "`input` is a text, or an array of items.")),
        None => return Err(ApiError::invalid(FIELD, "`input` is missing.")),
    }
    let messages: Vec<ChatMessage> = items
        .iter()
        .map(|item| match item {
            InputItem::Message(message) => message.clone(),
            InputItem::Answer { .. } => ChatMessage { role: ChatRole::Assistant, content: String::new() },
        })
        .collect();
    check_size(&messages, FIELD)?;
    check_last(&messages, FIELD, &last_path)?;
    Ok(items)
}

/// Reads `instructions`: what the system says.
fn instructions(object: &Map<String, Value>) -> Result<Option<ChatMessage>, ApiError> {
    match object.get("instructions") {
        Some(Value::Null) | None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        text @ Some(Value::String(_)) => {
            let content = content(text, "instructions")?;
            Ok(Some(ChatMessage { role: ChatRole::System, content }))
        }
        Some(_) => Err(ApiError::invalid("instructions", "`instructions` is a text.")),
    }
}

/// Reads one item; `None` if it says nothing to the project manager.
fn read_item(item: &Value, path: &str) -> Result<Option<InputItem>, ApiError> {
    let Value::Object(item) = item else {
        return Err(ApiError::invalid(path, format!("`{path}` is an object.")));
    };
    match item.get("type") {
        Some(Value::String(kind)) => match kind.as_str() {
            "message" => read_message(item, path),
            "item_reference" => read_reference(item, path),
            // What a client shows of an earlier answer, and sends back.
            "reasoning" => Ok(None),
            kind => {
                let why = format!(
                    "Input of type `{}` is not supported: the project manager calls its tools itself; send \
                     messages.",
                    printable(kind)
                );
                Err(ApiError::unsupported(format!("{path}.type"), why))
            }
        },
        Some(Value::Null) | None if !item.contains_key("role") && item.contains_key("id") => {
            read_reference(item, path)
        }
        Some(Value::Null) | None => read_message(item, path),
        Some(_) => Err(ApiError::invalid(format!("{path}.type"), format!("`{path}.type` is a text."))),
    }
}

/// Reads a message; `None` if it is an assistant's without text.
fn read_message(item: &Map<String, Value>, path: &str) -> Result<Option<InputItem>, ApiError> {
    let Some(role) = role(item) else {
        let path = format!("{path}.role");
        let why = format!("`{path}` is `system`, `developer`, `user` or `assistant`.");
        return Err(ApiError::invalid(path, why));
    };
    let content = content(item.get("content"), &format!("{path}.content"))?;
    if content.is_empty() && role == ChatRole::Assistant {
        return Ok(None);
    }
    Ok(Some(InputItem::Message(ChatMessage { role, content })))
}

/// Reads a reference to an item of an earlier response. Reasoning is not repeated.
fn read_reference(item: &Map<String, Value>, path: &str) -> Result<Option<InputItem>, ApiError> {
    let path = format!("{path}.id");
    match item.get("id").and_then(Value::as_str) {
        Some(id) if handoff_of(REASONING_PREFIX, id).is_some() => Ok(None),
        Some(id) => match handoff_of(MESSAGE_PREFIX, id) {
            Some(handoff_id) => Ok(Some(InputItem::Answer { handoff_id, path })),
            None => Err(item_not_found(&path)),
        },
        None => Err(ApiError::invalid(&path, format!("`{path}` is the id of an item."))),
    }
}

pub(super) fn item_not_found(path: &str) -> ApiError {
    let message = format!("`{path}` names no message of an answer, or it is another user's.");
    ApiError { code: "item_not_found".into(), ..ApiError::invalid(path, message) }
}
