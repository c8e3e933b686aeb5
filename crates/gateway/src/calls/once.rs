//! A key stands for one effect. Who comes second gets the first one's answer.

use rmcp::model::CallToolResult;

use super::{Ended, Request};
use crate::{
    policy::{Agent, Caller},
    store::entity::idempotency,
};

/// Keys are the caller's own, but not a token's: the work may be taken up again by another instance with another token.
pub(super) fn holder(caller: &Caller) -> String {
    match &caller.agent {
        Agent::Manager => caller.agent.kind().to_string(),
        Agent::Analyst(bound) | Agent::Sandbox(bound) => {
            format!("{} {} {}", caller.agent.kind(), bound.user, bound.task)
        }
    }
}

/// What an earlier call with this key left, if it is done and was the same call.
pub(super) fn recorded(known: &idempotency::Model, request: &Request, digest: &str) -> Option<Ended> {
    if known.tool != request.tool || known.arguments_digest != digest {
        return Some(Ended::badly(
            "key_reused",
            "This idempotency key was used for another call. Nothing was done; use a key of its own for each call.",
        ));
    }
    if known.state != idempotency::DONE {
        return None;
    }
    let result = known.result.as_deref().map(serde_json::from_str::<CallToolResult>);
    Some(match result {
        Some(Ok(result)) => Ended::replayed(result),
        _ => Ended::badly("in_doubt", "The call was made, but what it answered cannot be read any more."),
    })
}

pub(super) fn in_doubt() -> Ended {
    Ended::badly(
        "in_doubt",
        "An earlier call with this key was started, and it is unknown whether it had its effect. Check before you try again.",
    )
}
