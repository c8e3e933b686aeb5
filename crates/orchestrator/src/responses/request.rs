//! Reads the body of a response. Lenient about what it does not know, exact about what it uses: a field that
//! cannot be honoured is refused by name.

use serde_json::{Map, Value};
use subjects::HandoffId;

use super::{
    ID_PREFIX, handoff_of,
    input::{self, InputItem},
    object::Echo,
};
use crate::{
    answering::{
        Delivery, Question, Thread,
        fields::{boolean, count, is_set, metadata, temperature, text_of},
    },
    error::ApiError,
};

/// A request to the project manager.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResponseRequest {
    pub(super) input: Vec<InputItem>,
    /// The response that this one follows.
    pub(super) previous: Option<HandoffId>,
    pub(super) delivery: Delivery,
    /// Without messages, until `input` is resolved.
    pub(super) question: Question,
    pub(super) echo: Echo,
}

impl ResponseRequest {
    pub(super) fn read(object: &Map<String, Value>, max_messages: usize) -> Result<Self, ApiError> {
        refuse_unsupported(object)?;
        refuse_tools(object)?;
        refuse_formats(object)?;
        let metadata = metadata(object)?;
        let question = Question {
            messages: Vec::new(),
            temperature: temperature(object)?,
            max_tokens: count(object, "max_output_tokens")?,
            thread: Thread::of(metadata)?,
            project: text_of(metadata, "project_id")?,
        };
        let background = boolean(object, "background")?.unwrap_or(false);
        let delivery = match (boolean(object, "stream")?.unwrap_or(false), background) {
            (true, true) => Delivery::DetachedStream,
            (true, false) => Delivery::Stream,
            (false, true) => Delivery::Background,
            (false, false) => Delivery::Plain,
        };
        boolean(object, "store")?;
        let previous = previous(object)?;
        let echo = Echo {
            background,
            metadata: metadata.cloned().unwrap_or_default(),
            parallel_tool_calls: boolean(object, "parallel_tool_calls")?.unwrap_or(true),
            previous_response_id: previous.map(|id| format!("{ID_PREFIX}{id}")),
        };
        let input = input::read(object, max_messages)?;
        Ok(Self { input, previous, delivery, question, echo: echo.redacted() })
    }
}

fn previous(object: &Map<String, Value>) -> Result<Option<HandoffId>, ApiError> {
    match object.get("previous_response_id") {
        Some(Value::Null) | None => Ok(None),
        Some(Value::String(id)) => handoff_of(ID_PREFIX, id).map(Some).ok_or_else(previous_not_found),
        Some(_) => {
            let message = "`previous_response_id` is the id of a response.";
            Err(ApiError::invalid("previous_response_id", message))
        }
    }
}

pub(super) fn previous_not_found() -> ApiError {
    let message = "`previous_response_id` names no response, or it is another user's.";
    let missing = ApiError::invalid("previous_response_id", message);
    ApiError { code: "previous_response_not_found".into(), ..missing }
}

/// Refuses what would change the answer and cannot be honoured. Settings without effect pass.
fn refuse_unsupported(object: &Map<String, Value>) -> Result<(), ApiError> {
    for (key, why) in [
        (
            "conversation",
            "name a thread with X-Cynode-Thread, or follow a response with previous_response_id",
        ),
        ("prompt", "there are no stored prompts; send `instructions` and `input`"),
    ] {
        if is_set(object, key) {
            return Err(ApiError::unsupported(key, format!("`{key}` is not supported: {why}.")));
        }
    }
    let wants_logprobs = object.get("include").and_then(Value::as_array).is_some_and(|included| {
        included.iter().any(|name| name.as_str() == Some("message.output_text.logprobs"))
    });
    if wants_logprobs || object.get("top_logprobs").and_then(Value::as_u64).is_some_and(|count| count > 0) {
        let key = if wants_logprobs { "include" } else { "top_logprobs" };
        let why = format!("`{key}` asks for log probabilities, which are not known.");
        return Err(ApiError::unsupported(key, why));
    }
    Ok(())
}

/// Tools may be offered, as Codex always does, but none can be required: the project manager calls its own.
fn refuse_tools(object: &Map<String, Value>) -> Result<(), ApiError> {
    let why = "`tool_choice` cannot require a tool: the project manager calls the tools of its gateway, not \
               those of a client.";
    match object.get("tool_choice") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(choice)) => match choice.as_str() {
            "auto" | "none" => Ok(()),
            "required" => Err(ApiError::unsupported("tool_choice", why)),
            _ => Err(ApiError::invalid("tool_choice", "`tool_choice` is `auto` or `none`.")),
        },
        Some(Value::Object(choice)) if choice.get("mode").and_then(Value::as_str) == Some("auto") => Ok(()),
        Some(Value::Object(_)) => Err(ApiError::unsupported("tool_choice", why)),
        Some(_) => Err(ApiError::invalid("tool_choice", "`tool_choice` is `auto` or `none`.")),
    }
}

fn refuse_formats(object: &Map<String, Value>) -> Result<(), ApiError> {
    let text = match object.get("text") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(text)) => text,
        Some(_) => return Err(ApiError::invalid("text", "`text` is an object.")),
    };
    match text.get("format") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(format)) if format.get("type").and_then(Value::as_str) == Some("text") => Ok(()),
        Some(_) => {
            let why = "`text.format` can be {\"type\": \"text\"} only: the project manager answers in prose.";
            Err(ApiError::unsupported("text.format", why))
        }
    }
}

#[cfg(test)]
mod tests;
