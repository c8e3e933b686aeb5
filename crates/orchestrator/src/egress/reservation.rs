//! The most that a call can use. Under a budget a request is checked and limited before it is passed on, so
//! that the provider cannot bill for more than was reserved.

use serde_json::Value;

use super::{
    paths::Endpoint,
    provider::Provider,
    request::{Members, read_member},
    usage::Tokens,
};
use crate::error::ApiError;

/// Members that limit a reply, by their names in the protocols and at servers.
pub(super) const LIMITS: [&str; 5] =
    ["max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens", "n_predict"];

/// Tokens that a provider adds to a prompt itself, such as instructions about tools.
const ADDED_PROMPT_TOKENS: u64 = 1_000;

/// Members by which a request costs more than its size and its limit tell: what the provider has stored,
/// tools that it runs itself, work after its reply, and other models, tiers and prices.
const UNBOUNDED: [&str; 17] = [
    "audio",
    "background",
    "best_of",
    "container",
    "context_management",
    "conversation",
    "extra_body",
    "fallbacks",
    "mcp_servers",
    "models",
    "plugins",
    "prediction",
    "previous_response_id",
    "prompt",
    "service_tier",
    "speed",
    "web_search_options",
];

/// Members that hold the text of the request.
const INPUTS: [&str; 3] = ["messages", "input", "system"];

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

/// What a call is expected to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// What it uses about.
    pub(super) likely: Tokens,
    /// The most that it can use. `None` without a budget, because the request is not limited then.
    pub(super) most: Option<Tokens>,
}

impl Expected {
    /// Returns what counts against the budget while the call is open.
    pub(super) fn reserved(self) -> Tokens {
        self.most.unwrap_or(self.likely)
    }
}

/// What is reserved for a call, and how its reply is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) most: Tokens,
    /// The member that limits the reply, and its value. `None` if a reply has no completion.
    pub(super) limit: Option<(&'static str, u64)>,
}

/// Returns what has to be reserved for a request. Refuses one whose use has no bound.
pub(super) fn reserve(
    members: &Members<'_>,
    body_bytes: usize,
    endpoint: Endpoint,
    provider: &Provider,
) -> Result<Reservation, ApiError> {
    check_bounded(members)?;
    // No tokenizer makes more than one token of a byte of text.
    let prompt = u64::try_from(body_bytes).unwrap_or(u64::MAX).saturating_add(ADDED_PROMPT_TOKENS);
    let name = match endpoint {
        Endpoint::ChatCompletions => provider.limit_field(),
        Endpoint::Responses => "max_output_tokens",
        Endpoint::Messages => "max_tokens",
        Endpoint::Embeddings | Endpoint::Models => {
            return Ok(Reservation { most: Tokens { prompt, completion: 0 }, limit: None });
        }
    };
    let mut limit = provider.max_completion_tokens();
    for name in LIMITS {
        limit = limit.min(count(members, name)?.unwrap_or(u64::MAX));
    }
    let completion = limit.saturating_mul(count(members, "n")?.unwrap_or(1));
    Ok(Reservation { most: Tokens { prompt, completion }, limit: Some((name, limit)) })
}

/// Returns a member that is a positive number. `None` if it is absent or null.
fn count(members: &Members<'_>, name: &str) -> Result<Option<u64>, ApiError> {
    match read_member::<Value>(members, name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().filter(|count| *count > 0).map(Some).ok_or_else(|| {
            ApiError::invalid(
                name,
                format!("`{name}` must be a positive whole number, because of the budget."),
            )
        }),
    }
}

/// Refuses what may use any amount, whatever the size and the limit of the request.
fn check_bounded(members: &Members<'_>) -> Result<(), ApiError> {
    let refuse = |name: &str, what: &str| {
        let message = format!(
            "The provider has a budget, and {what} may cost more than the request tells; send text, and \
             tools that the agent runs itself."
        );
        Err(ApiError::unsupported(name, message))
    };
    let given = |name: &str| read_member::<Value>(members, name).filter(|value| !value.is_null());
    if let Some(name) = UNBOUNDED.into_iter().find(|name| given(name).is_some()) {
        return refuse(name, &format!("`{name}`"));
    }
    if let Some(name) = INPUTS.into_iter().find(|name| given(name).is_some_and(|input| !is_text(&input))) {
        return refuse(name, &format!("something in `{name}` that is not text"));
    }
    if given("tools").is_some_and(|tools| !are_of_the_agent(&tools)) {
        return refuse("tools", "a tool of the provider");
    }
    Ok(())
}

/// Returns whether an input consists of texts, and of messages and items that have only texts.
fn is_text(input: &Value) -> bool {
    match input {
        Value::Object(item) => {
            let is_known = match item.get("type") {
                None => item.contains_key("role"),
                Some(kind) => kind.as_str().is_some_and(|kind| TEXT_TYPES.contains(&kind)),
            };
            let refers_to_audio = item.get("audio").is_some_and(|audio| !audio.is_null());
            let has_text = |name: &&str| item.get(*name).is_none_or(is_text);
            is_known && !refers_to_audio && ["content", "output"].iter().all(has_text)
        }
        Value::Array(items) => items.iter().all(is_text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns whether the agent itself runs these tools, in the form of OpenAI or of Anthropic.
fn are_of_the_agent(tools: &Value) -> bool {
    let is_of_the_agent = |tool: &Value| match tool.get("type").map(Value::as_str) {
        None => tool.get("input_schema").is_some(),
        Some(kind) => matches!(kind, Some("function" | "custom")),
    };
    tools.as_array().is_some_and(|tools| tools.iter().all(is_of_the_agent))
}
