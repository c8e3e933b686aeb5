//! What requests have in common. Lenient about what it does not know, exact about what it uses: a field that
//! cannot be honoured is refused by name.

use contract::thread::{FRAME_BYTES, MAX_MESSAGES_BYTES, MAX_NAME_BYTES, message_size};
use serde_json::{Map, Value};
use subjects::{ChatMessage, ChatRole};

use crate::{error::ApiError, joined_text::join_redacted};

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

/// Returns whether a field has a value that asks for something.
pub(crate) fn is_set(object: &Map<String, Value>, key: &str) -> bool {
    match object.get(key) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

/// Reads an array of at most `max` messages.
pub(crate) fn list<'v>(value: &'v Value, field: &str, max: usize) -> Result<&'v [Value], ApiError> {
    let Value::Array(listed) = value else {
        return Err(ApiError::invalid(field, format!("`{field}` is an array.")));
    };
    if listed.len() > max {
        let message = format!("`{field}` has {} messages; at most {max} are accepted.", listed.len());
        return Err(ApiError { code: "array_too_long".into(), ..ApiError::invalid(field, message) });
    }
    Ok(listed)
}

/// Checks that messages are not too large, as the gateway does. `field` is the one that they were read from.
pub(crate) fn check_size(messages: &[ChatMessage], field: &str) -> Result<(), ApiError> {
    check_bytes(messages.iter().map(message_size).sum(), field)
}

/// Checks the size of messages that are not all there yet, as [`check_size`] does.
pub(crate) fn check_bytes(bytes: usize, field: &str) -> Result<(), ApiError> {
    if bytes > MAX_MESSAGES_BYTES {
        let message = format!(
            "`{field}` has {bytes} bytes; at most {MAX_MESSAGES_BYTES} are accepted. Counted are the texts \
             as JSON, where a line break has two bytes, and {FRAME_BYTES} for each message."
        );
        let too_long = ApiError::invalid(field, message);
        return Err(ApiError { code: "context_length_exceeded".into(), ..too_long });
    }
    Ok(())
}

/// Checks that the last message is the user's. `field` is the one that they were read from, `path` that of
/// the last one.
pub(crate) fn check_last(messages: &[ChatMessage], field: &str, path: &str) -> Result<(), ApiError> {
    match messages.last() {
        None => Err(ApiError::invalid(field, format!("`{field}` is empty: there is nothing to answer."))),
        Some(last) if last.role != ChatRole::User => {
            let message = "The last message must be the user's: it is what is answered.";
            Err(ApiError::invalid(format!("{path}.role"), message))
        }
        Some(last) if last.content.trim().is_empty() => {
            let message = "The last message is empty: there is nothing to answer.";
            Err(ApiError::invalid(format!("{path}.content"), message))
        }
        Some(_) => Ok(()),
    }
}

/// Reads the role of a message; `None` if it is none that is known.
pub(crate) fn role(message: &Map<String, Value>) -> Option<ChatRole> {
    match message.get("role").and_then(Value::as_str) {
        Some("user") => Some(ChatRole::User),
        Some("system" | "developer") => Some(ChatRole::System),
        Some("assistant") => Some(ChatRole::Assistant),
        Some(_) | None => None,
    }
}

/// Reads the content of a message, a string or text parts, and replaces its secrets.
pub(crate) fn content(value: Option<&Value>, path: &str) -> Result<String, ApiError> {
    let parts = match value {
        Some(Value::String(text)) => vec![text.as_str()],
        Some(Value::Array(parts)) => {
            let read = |(index, part)| read_part(part, &format!("{path}[{index}]"));
            parts.iter().enumerate().map(read).collect::<Result<Vec<&str>, ApiError>>()?
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

pub(crate) fn metadata(object: &Map<String, Value>) -> Result<Option<&Map<String, Value>>, ApiError> {
    match object.get("metadata") {
        Some(Value::Object(metadata)) => Ok(Some(metadata)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(ApiError::invalid("metadata", "`metadata` is an object.")),
    }
}

/// Reads a text of `metadata`; `None` if it is missing or empty.
pub(crate) fn text_of(metadata: Option<&Map<String, Value>>, key: &str) -> Result<Option<String>, ApiError> {
    match metadata.and_then(|metadata| metadata.get(key)) {
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(Value::Null) | None => Ok(None),
        Some(_) => {
            let path = format!("metadata.{key}");
            let message = format!("`{path}` is a string.");
            Err(ApiError::invalid(path, message))
        }
    }
}

pub(crate) fn boolean(object: &Map<String, Value>, key: &str) -> Result<Option<bool>, ApiError> {
    match object.get(key) {
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(Value::Null) | None => Ok(None),
        Some(_) => Err(ApiError::invalid(key, format!("`{key}` is true or false."))),
    }
}

pub(crate) fn temperature(object: &Map<String, Value>) -> Result<Option<f64>, ApiError> {
    match object.get("temperature") {
        Some(Value::Null) | None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(degrees) if (0.0..=2.0).contains(&degrees) => Ok(Some(degrees)),
            _ => Err(ApiError::invalid("temperature", "`temperature` is a number from 0 to 2.")),
        },
    }
}

/// Reads a limit of tokens, or any other count above 0.
pub(crate) fn count(object: &Map<String, Value>, key: &str) -> Result<Option<u32>, ApiError> {
    match object.get(key) {
        Some(Value::Null) | None => Ok(None),
        Some(value) => {
            let limit = value.as_u64().filter(|limit| *limit > 0);
            let wrong = || ApiError::invalid(key, format!("`{key}` is a whole number above 0."));
            Ok(Some(u32::try_from(limit.ok_or_else(wrong)?).unwrap_or(u32::MAX)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_of_messages_is_counted_as_json() {
        let user = |content: String| [ChatMessage { role: ChatRole::User, content }];
        let room = MAX_MESSAGES_BYTES - FRAME_BYTES;
        for (text, per_character) in [("x", 1), ("ä", 2), ("\n", 2), ("\"", 2), ("\u{1}", 6)] {
            let most = room / per_character;
            assert_eq!(check_size(&user(text.repeat(most)), "input"), Ok(()), "{text:?}");
            let refused = check_size(&user(text.repeat(most + 1)), "input").unwrap_err();
            assert_eq!(
                (&*refused.code, refused.param.as_deref()),
                ("context_length_exceeded", Some("input"))
            );
            assert!(refused.message.contains("at most 524288 are accepted"), "{refused}");
        }
    }
}
