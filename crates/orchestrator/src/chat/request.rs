//! Reads the body of a chat completion. Lenient about what it does not know, exact about what it uses: a
//! field that cannot be honoured is refused by name.

use serde_json::{Map, Value};
use subjects::{ChatMessage, ChatRole};

use super::redaction::join_redacted;
use crate::error::ApiError;

/// The longest name that a client may choose.
pub(crate) const MAX_NAME_BYTES: usize = contract::thread::MAX_NAME_BYTES;

/// What is asked for, whatever the model.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChatRequest {
    pub(crate) model: String,
    /// Without secrets. The last one is the user's.
    pub(crate) messages: Vec<ChatMessage>,
    pub(crate) stream: bool,
    /// Whether the stream ends with a chunk of usage.
    pub(crate) include_usage: bool,
    pub(crate) temperature: Option<f64>,
    pub(crate) max_tokens: Option<u32>,
    /// `metadata.thread_id`.
    pub(crate) thread: Option<String>,
    /// `metadata.project_id`.
    pub(crate) project: Option<String>,
}

/// Parses a body as a JSON object. Deeper than 128 levels is refused.
pub(crate) fn parse_object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    let not_json = |why: String| {
        let message = format!("The body is not JSON: {why}.");
        ApiError { code: "invalid_json".into(), param: None, ..ApiError::invalid("", message) }
    };
    match serde_json::from_slice(body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(not_json("an object is expected".to_owned())),
        Err(error) => Err(not_json(error.to_string())),
    }
}

/// Returns the model that a request names.
pub(crate) fn model(object: &Map<String, Value>) -> Result<&str, ApiError> {
    match object.get("model") {
        Some(Value::String(model)) if !model.is_empty() && model.len() <= MAX_NAME_BYTES => Ok(model),
        Some(_) => Err(ApiError::invalid("model", "`model` is the id of a model.")),
        None => Err(ApiError::invalid("model", "`model` is missing: name a model of GET /v1/models.")),
    }
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
        Ok(Self {
            model,
            messages: messages(object, max_messages)?,
            stream,
            include_usage,
            temperature: temperature(object)?,
            max_tokens: max_tokens(object)?,
            thread: metadata.and_then(|metadata| text_of(metadata, "thread_id")),
            project: metadata.and_then(|metadata| text_of(metadata, "project_id")),
        })
    }
}

/// Refuses what would change the answer and cannot be honoured. Settings without effect pass.
fn refuse_unsupported(object: &Map<String, Value>) -> Result<(), ApiError> {
    let is_set = |key: &str| match object.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    };
    for (key, why) in [
        ("tools", "the project manager calls the tools of its gateway, not those of a client"),
        ("functions", "the project manager calls the tools of its gateway, not those of a client"),
        ("logprobs", "log probabilities are not known"),
        ("audio", "answers are text"),
    ] {
        if is_set(key) {
            return Err(ApiError::unsupported(key, format!("`{key}` is not supported: {why}.")));
        }
    }
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

fn messages(object: &Map<String, Value>, max: usize) -> Result<Vec<ChatMessage>, ApiError> {
    let listed = match object.get("messages") {
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(ApiError::invalid("messages", "`messages` is an array.")),
        None => return Err(ApiError::invalid("messages", "`messages` is missing.")),
    };
    if listed.len() > max {
        let message = format!("`messages` has {} messages; at most {max} are accepted.", listed.len());
        return Err(ApiError { code: "array_too_long".into(), ..ApiError::invalid("messages", message) });
    }
    let mut messages = Vec::with_capacity(listed.len());
    let mut bytes = 0;
    for (index, message) in listed.iter().enumerate() {
        let Some(message) = read_message(message, &format!("messages[{index}]"))? else { continue };
        bytes += message.content.len();
        messages.push(message);
    }
    if bytes > contract::thread::MAX_MESSAGES_BYTES {
        let max = contract::thread::MAX_MESSAGES_BYTES;
        let message = format!("`messages` has {bytes} bytes of text; at most {max} are accepted.");
        let too_long = ApiError::invalid("messages", message);
        return Err(ApiError { code: "context_length_exceeded".into(), ..too_long });
    }
    match messages.last() {
        None => Err(ApiError::invalid("messages", "`messages` is empty: there is nothing to answer.")),
        Some(last) if last.role != ChatRole::User => {
            let message = "The last message must be the user's: it is what is answered.";
            Err(ApiError::invalid(format!("messages[{}].role", listed.len() - 1), message))
        }
        Some(last) if last.content.trim().is_empty() => {
            let message = "The last message is empty: there is nothing to answer.";
            Err(ApiError::invalid(format!("messages[{}].content", listed.len() - 1), message))
        }
        Some(_) => Ok(messages),
    }
}

/// Reads one message; `None` if it is an assistant's without text.
fn read_message(message: &Value, path: &str) -> Result<Option<ChatMessage>, ApiError> {
    let Value::Object(message) = message else {
        return Err(ApiError::invalid(path, format!("`{path}` is an object.")));
    };
    let role_path = format!("{path}.role");
    let role = match message.get("role").and_then(Value::as_str) {
        Some("user") => ChatRole::User,
        Some("system" | "developer") => ChatRole::System,
        Some("assistant") => ChatRole::Assistant,
        Some("tool" | "function") => {
            let why = "Messages of tools are not supported: the project manager calls its tools itself.";
            return Err(ApiError::unsupported(role_path, why));
        }
        Some(_) | None => {
            let why = format!("`{role_path}` is `system`, `developer`, `user` or `assistant`.");
            return Err(ApiError::invalid(role_path, why));
        }
    };
    for key in ["tool_calls", "function_call", "audio"] {
        let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if message.get(key).is_some_and(|value| !is_empty(value)) {
            return Err(ApiError::unsupported(format!("{path}.{key}"), format!("`{key}` is not supported.")));
        }
    }
    let content = content(message, &format!("{path}.content"), role)?;
    if content.is_empty() && role == ChatRole::Assistant {
        return Ok(None);
    }
    Ok(Some(ChatMessage { role, content }))
}

/// Reads the content of a message, a string or text parts, and replaces its secrets.
fn content(message: &Map<String, Value>, path: &str, role: ChatRole) -> Result<String, ApiError> {
    let parts = match message.get("content") {
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(parts)) => {
            let read = |(index, part)| read_part(part, &format!("{path}[{index}]"));
            parts.iter().enumerate().map(read).collect::<Result<Vec<&str>, ApiError>>()?
        }
        // What an assistant refused, or a message that had only tool calls.
        Some(Value::Null) | None if role == ChatRole::Assistant => {
            vec![message.get("refusal").and_then(Value::as_str).unwrap_or_default()]
        }
        Some(_) | None => {
            return Err(ApiError::invalid(path, format!("`{path}` is a string, or an array of text parts.")));
        }
    };
    if parts.iter().any(|part| part.contains('\0')) {
        return Err(ApiError::invalid(path, format!("`{path}` contains a NUL character.")));
    }
    Ok(join_redacted(&parts))
}

fn read_part<'v>(part: &'v Value, path: &str) -> Result<&'v str, ApiError> {
    let Value::Object(part) = part else {
        return Err(ApiError::invalid(path, format!("`{path}` is an object.")));
    };
    let text_path = || format!("{path}.text");
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => match part.get("text") {
            Some(Value::String(text)) => Ok(text),
            Some(_) | None => Err(ApiError::invalid(text_path(), format!("`{}` is a string.", text_path()))),
        },
        Some("refusal") => Ok(part.get("refusal").and_then(Value::as_str).unwrap_or_default()),
        Some(kind @ ("image_url" | "input_image" | "input_audio" | "file" | "input_file" | "video_url")) => {
            let why = format!("Content of type `{kind}` is not supported: send text.");
            Err(ApiError::unsupported(format!("{path}.type"), why))
        }
        Some(_) | None => Err(ApiError::invalid(format!("{path}.type"), format!("`{path}.type` is `text`."))),
    }
}

fn metadata(object: &Map<String, Value>) -> Result<Option<&Map<String, Value>>, ApiError> {
    match object.get("metadata") {
        Some(Value::Object(metadata)) => Ok(Some(metadata)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(ApiError::invalid("metadata", "`metadata` is an object.")),
    }
}

fn text_of(object: &Map<String, Value>, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn boolean(object: &Map<String, Value>, key: &str) -> Result<Option<bool>, ApiError> {
    match object.get(key) {
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(ApiError::invalid(key, format!("`{key}` is true or false."))),
    }
}

fn temperature(object: &Map<String, Value>) -> Result<Option<f64>, ApiError> {
    match object.get("temperature") {
        Some(Value::Null) | None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(degrees) if (0.0..=2.0).contains(&degrees) => Ok(Some(degrees)),
            _ => Err(ApiError::invalid("temperature", "`temperature` is a number from 0 to 2.")),
        },
    }
}

/// Reads the newer name of the limit before the older one.
fn max_tokens(object: &Map<String, Value>) -> Result<Option<u32>, ApiError> {
    for key in ["max_completion_tokens", "max_tokens"] {
        match object.get(key) {
            Some(Value::Null) | None => {}
            Some(value) => {
                let limit = value.as_u64().filter(|limit| *limit > 0);
                let wrong = || ApiError::invalid(key, format!("`{key}` is a whole number above 0."));
                let limit = limit.ok_or_else(wrong)?;
                return Ok(Some(u32::try_from(limit).unwrap_or(u32::MAX)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
