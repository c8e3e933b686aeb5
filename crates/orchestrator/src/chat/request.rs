//! Reads the body of a chat completion. Lenient about what it does not know, exact about what it uses: a
//! field that cannot be honoured is refused by name.

use serde_json::{Map, Value};
use subjects::{ChatMessage, ChatRole};

use crate::{
    answering::{
        Question, Thread,
        fields::{
            boolean, check_last, check_size, content, count, is_set, list, metadata, model, role,
            temperature, text_of,
        },
    },
    error::ApiError,
};

/// A chat with the project manager.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChatRequest {
    pub(crate) model: String,
    pub(crate) stream: bool,
    /// Whether the stream ends with a chunk of usage.
    pub(crate) include_usage: bool,
    pub(crate) question: Question,
}

impl ChatRequest {
    /// Reads a chat with the project manager.
    pub(crate) fn read(object: &Map<String, Value>, max_messages: usize) -> Result<Self, ApiError> {
        let model = model(object)?.to_owned();
        refuse_unsupported(object)?;
        let stream = boolean(object, "stream")?.unwrap_or(false);
        let include_usage = match object.get("stream_options") {
            Some(Value::Object(options)) => boolean(options, "include_usage")?.unwrap_or(false),
            Some(Value::Null) | None => false,
            Some(_) => return Err(ApiError::invalid("stream_options", "`stream_options` is an object.")),
        };
        let metadata = metadata(object)?;
        let question = Question {
            messages: messages(object, max_messages)?,
            temperature: temperature(object)?,
            max_tokens: max_tokens(object)?,
            thread: Thread::of(metadata)?,
            project: text_of(metadata, "project_id")?,
        };
        Ok(Self { model, stream, include_usage, question })
    }
}

/// Refuses what would change the answer and cannot be honoured. Settings without effect pass.
fn refuse_unsupported(object: &Map<String, Value>) -> Result<(), ApiError> {
    for (key, why) in [("logprobs", "log probabilities are not known"), ("audio", "answers are text")] {
        if is_set(object, key) {
            return Err(ApiError::unsupported(key, format!("`{key}` is not supported: {why}.")));
        }
    }
    refuse_demanded_calls(object)?;
    match object.get("n") {
        None | Some(Value::Null) => {}
        Some(n) if n.as_u64() == Some(1) => {}
        Some(n) if n.as_u64().is_some_and(|n| n > 1) => {
            return Err(ApiError::unsupported("n", "`n` is 1: there is one answer."));
        }
        Some(_) => return Err(ApiError::invalid("n", "`n` is 1: there is one answer.")),
    }
    if let Some(Value::Array(kinds)) = object.get("modalities")
        && kinds.iter().any(|kind| kind.as_str() != Some("text"))
    {
        return Err(ApiError::unsupported("modalities", "`modalities` can be [\"text\"] only."));
    }
    match object.get("response_format") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(format)) if format.get("type").and_then(Value::as_str) == Some("text") => Ok(()),
        Some(_) => {
            let why =
                "`response_format` can be {\"type\": \"text\"} only: the project manager answers in prose.";
            Err(ApiError::unsupported("response_format", why))
        }
    }
}

/// Tools that a client offers pass, since a model need not call them, and Open WebUI always offers some. A
/// demand that they be called is refused.
fn refuse_demanded_calls(object: &Map<String, Value>) -> Result<(), ApiError> {
    for key in ["tool_choice", "function_call"] {
        match object.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(choice)) if matches!(choice.as_str(), "auto" | "none") => {}
            Some(_) => {
                let message = format!(
                    "`{key}` can be \"auto\" or \"none\" only: the project manager calls the tools of its \
                     gateway, not those of a client."
                );
                return Err(ApiError::unsupported(key, message));
            }
        }
    }
    Ok(())
}

fn messages(object: &Map<String, Value>, max: usize) -> Result<Vec<ChatMessage>, ApiError> {
    const FIELD: &str = "messages";
    let missing = || ApiError::invalid(FIELD, "`messages` is missing.");
    let listed = list(object.get(FIELD).ok_or_else(missing)?, FIELD, max)?;
    let mut messages = Vec::with_capacity(listed.len());
    for (index, message) in listed.iter().enumerate() {
        messages.extend(read_message(message, &format!("{FIELD}[{index}]"))?);
    }
    check_size(&messages, FIELD)?;
    check_last(&messages, FIELD, &format!("{FIELD}[{}]", listed.len().saturating_sub(1)))?;
    Ok(messages)
}

/// Reads one message; `None` if it is an assistant's without text.
fn read_message(message: &Value, path: &str) -> Result<Option<ChatMessage>, ApiError> {
    let Value::Object(message) = message else {
        return Err(ApiError::invalid(path, format!("`{path}` is an object.")));
    };
    let role_path = format!("{path}.role");
    let Some(role) = role(message) else {
        if matches!(message.get("role").and_then(Value::as_str), Some("tool" | "function")) {
            let why = "Messages of tools are not supported: the project manager calls its tools itself.";
            return Err(ApiError::unsupported(role_path, why));
        }
        let why = format!("`{role_path}` is `system`, `developer`, `user` or `assistant`.");
        return Err(ApiError::invalid(role_path, why));
    };
    for key in ["tool_calls", "function_call", "audio"] {
        let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if message.get(key).is_some_and(|value| !is_empty(value)) {
            return Err(ApiError::unsupported(format!("{path}.{key}"), format!("`{key}` is not supported.")));
        }
    }
    let content = match message.get("content") {
        // What an assistant refused, or a message that had only tool calls.
        Some(Value::Null) | None if role == ChatRole::Assistant => match message.get("refusal") {
            refusal @ Some(Value::String(_)) => content(refusal, &format!("{path}.refusal"))?,
            Some(_) | None => String::new(),
        },
        value => content(value, &format!("{path}.content"))?,
    };
    if content.is_empty() && role == ChatRole::Assistant {
        return Ok(None);
    }
    Ok(Some(ChatMessage { role, content }))
}

/// Reads the newer name of the limit before the older one.
fn max_tokens(object: &Map<String, Value>) -> Result<Option<u32>, ApiError> {
    match count(object, "max_completion_tokens")? {
        Some(limit) => Ok(Some(limit)),
        None => count(object, "max_tokens"),
    }
}

#[cfg(test)]
mod tests;
