//! The most that a call can use. Under a budget a request is checked and limited before it is passed on, so
//! that the provider cannot bill for more than was reserved.

use serde_json::{Map, Value};

use super::{bounds, paths::Endpoint, provider::Provider, usage::Tokens};
use crate::error::ApiError;

/// Members that limit a reply, by their names in the protocols and at servers.
pub(super) const LIMITS: [&str; 5] =
    ["max_completion_tokens", "max_tokens", "max_output_tokens", "max_new_tokens", "n_predict"];

/// Tokens that a provider adds to a prompt itself, such as instructions about tools.
const ADDED_PROMPT_TOKENS: u64 = 1_000;

/// The expected usage of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// The estimated usage.
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

/// The reservation of a call, and the limit of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) most: Tokens,
    /// The member that limits the reply, and its value. `None` if a reply has no completion.
    pub(super) limit: Option<(&'static str, u64)>,
}

/// Returns what has to be reserved for a request. Refuses one whose use has no bound.
pub(super) fn reserve(
    members: &Map<String, Value>,
    body_bytes: usize,
    endpoint: Endpoint,
    provider: &Provider,
) -> Result<Reservation, ApiError> {
    bounds::check(members)?;
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
fn count(members: &Map<String, Value>, name: &str) -> Result<Option<u64>, ApiError> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().filter(|count| *count > 0).map(Some).ok_or_else(|| {
            ApiError::invalid(
                name,
                format!("`{name}` must be a positive whole number, because of the budget."),
            )
        }),
    }
}
