//! Limits requests under a budget to fields whose cost is bounded by the size of the request and the limit of
//! its reply. Any other field is refused by name.

use serde_json::{Map, Value};

use super::reservation::LIMITS;
use crate::error::ApiError;

/// Members of a request, in all protocols, that have no price of their own.
const MEMBERS: [&str; 52] = [
    "cache_prompt",
    "dimensions",
    "encoding_format",
    "frequency_penalty",
    "function_call",
    "functions",
    "include",
    "include_reasoning",
    "input",
    "input_type",
    "instructions",
    "logit_bias",
    "logprobs",
    "max_tool_calls",
    "messages",
    "metadata",
    "min_p",
    "model",
    "n",
    "output_config",
    "output_format",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "random_seed",
    "reasoning",
    "reasoning_effort",
    "reasoning_format",
    "repeat_penalty",
    "repetition_penalty",
    "response_format",
    "safe_prompt",
    "safety_identifier",
    "seed",
    "stop",
    "stop_sequences",
    "store",
    "stream",
    "stream_options",
    "system",
    "temperature",
    "text",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "verbosity",
];

/// Members that hold the text of the request.
const INPUTS: [&str; 4] = ["messages", "input", "system", "instructions"];

/// Types of the parts and items of a request that are text. Images, audio, files and references cost more
/// than their size tells.
const TEXT_TYPES: [&str; 16] = [
    "text",
    "input_text",
    "output_text",
    "refusal",
    "message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "reasoning_text",
    "summary_text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
];

/// Members of messages, items and parts that are text, or say what a text is.
const ITEM_MEMBERS: [&str; 34] = [
    "annotations",
    "arguments",
    "cache_control",
    "call_id",
    "citations",
    "content",
    "data",
    "encrypted_content",
    "extra_content",
    "function_call",
    "id",
    "input",
    "is_error",
    "logprobs",
    "name",
    "output",
    "phase",
    "prefix",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "role",
    "signature",
    "status",
    "summary",
    "text",
    "thinking",
    "thought_signature",
    "tool_call_id",
    "tool_calls",
    "tool_name",
    "tool_use_id",
    "type",
];

/// Members of an item that have texts, or items again.
const NESTED: [&str; 3] = ["content", "output", "summary"];

/// Members of a tool that the agent runs itself, in the forms of OpenAI and Anthropic.
const TOOL_MEMBERS: [&str; 12] = [
    "cache_control",
    "description",
    "eager_input_streaming",
    "format",
    "function",
    "input_examples",
    "input_schema",
    "name",
    "parameters",
    "strict",
    "title",
    "type",
];

/// Refuses what may use any amount, whatever the size and the limit of the request. A member that is null
/// counts as absent.
pub(super) fn check(members: &Map<String, Value>) -> Result<(), ApiError> {
    let is_known = |name: &str| MEMBERS.contains(&name) || LIMITS.contains(&name);
    if let Some(name) = unknown(members, is_known) {
        return Err(refuse(name, &quote(name)));
    }
    for name in INPUTS {
        if let Some(Err(found)) = members.get(name).map(check_text) {
            return Err(refuse(name, &format!("{found} in `{name}`")));
        }
    }
    let tools = members.get("tools").filter(|tools| !tools.is_null());
    if tools.is_some_and(|tools| !are_of_the_agent(tools)) {
        return Err(refuse("tools", "a tool of the provider"));
    }
    Ok(())
}

fn refuse(param: &str, what: &str) -> ApiError {
    let message = format!(
        "The provider has a budget, and {what} may cost more than the request tells, or is not known; send \
         text, tools that the agent runs itself, and only the members that docs/egress.md lists."
    );
    ApiError::unsupported(shorten(param), message)
}

/// Returns the name of a member that is neither known nor null.
fn unknown(members: &Map<String, Value>, is_known: impl Fn(&str) -> bool) -> Option<&str> {
    let mut given = members.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str());
    given.find(|name| !is_known(name))
}

fn quote(name: &str) -> String {
    format!("`{}`", shorten(name))
}

/// Shortens a name that an agent chose, because it is in a message.
fn shorten(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

/// Checks that an input consists of texts, and of messages and items that have only texts. Otherwise returns
/// what was found.
fn check_text(input: &Value) -> Result<(), String> {
    let item = match input {
        Value::Object(item) => item,
        Value::Array(items) => return items.iter().try_for_each(check_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return Ok(()),
    };
    match item.get("type") {
        None if item.contains_key("role") => {}
        None => return Err("an item without `type`".to_owned()),
        Some(Value::String(kind)) if TEXT_TYPES.contains(&kind.as_str()) => {}
        Some(Value::String(kind)) => return Err(format!("the type {}", quote(kind))),
        Some(_) => return Err("a `type` that is no text".to_owned()),
    }
    if let Some(name) = unknown(item, |name| ITEM_MEMBERS.contains(&name)) {
        return Err(quote(name));
    }
    NESTED.iter().filter_map(|name| item.get(*name)).try_for_each(check_text)
}

/// Returns whether the agent itself runs these tools, in the form of OpenAI or of Anthropic.
fn are_of_the_agent(tools: &Value) -> bool {
    let is_of_the_agent = |tool: &Value| {
        let has_form = match tool.get("type").map(Value::as_str) {
            None => tool.get("input_schema").is_some(),
            Some(kind) => matches!(kind, Some("function" | "custom")),
        };
        let is_known = |name: &str| TOOL_MEMBERS.contains(&name);
        has_form && tool.as_object().is_some_and(|tool| unknown(tool, is_known).is_none())
    };
    tools.as_array().is_some_and(|tools| tools.iter().all(is_of_the_agent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_what_is_permitted() {
        let docs = include_str!("../../../../docs/egress.md");
        let row = |part: &str| docs.lines().find(|line| line.starts_with(&format!("| {part} |"))).unwrap();
        let members = [MEMBERS.as_slice(), &LIMITS].concat();
        for (part, names) in [
            ("its members", members.as_slice()),
            ("`messages`, `input`, `system`, `instructions`", &TEXT_TYPES),
            ("members of messages, items and parts", &ITEM_MEMBERS),
            ("`tools`", &TOOL_MEMBERS),
        ] {
            for name in names {
                assert!(row(part).contains(&format!("`{name}`")), "{name} is not in the row {part}");
            }
        }
    }
}
