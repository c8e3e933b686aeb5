//! Idempotency keys of calls: a key identifies one effect, and a later call with it gets the answer of the
//! first.

use rmcp::model::CallToolResult;

use super::{Request, ToolReply};
use policy::{Bounds, Caller};

use store::entity::idempotency;

/// Returns the namespace of the caller's keys: that of its job, otherwise that of its user and task. It does
/// not depend on the token or the lease, because another instance may continue the work with others.
pub(super) fn holder(caller: &Caller) -> String {
    let kind = caller.agent.kind();
    match caller.bounds() {
        None => kind.to_string(),
        Some(Bounds { user, task, job, .. }) => {
            let task = task.unwrap_or_default();
            match job {
                Some(job) => format!("{kind} {user} {task} {job}"),
                None => format!("{kind} {user} {task}"),
            }
        }
    }
}

/// Returns the reply of the earlier call that holds the key, or an error if that was a different call. `None`
/// if the earlier call has no answer yet.
pub(super) fn recorded_reply(
    known: &idempotency::Model,
    request: &Request,
    digest: &str,
) -> Option<ToolReply> {
    if known.tool != request.tool || known.arguments_digest != digest {
        return Some(ToolReply::failure(
            "key_reused",
            "This idempotency key was used for another call. Nothing was done; \
             use a different key for each call.",
        ));
    }
    if known.state != idempotency::DONE {
        return None;
    }
    let result = known.result.as_deref().map(serde_json::from_str::<CallToolResult>);
    Some(match result {
        Some(Ok(result)) => ToolReply::replayed(result),
        _ => ToolReply::failure("in_doubt", "The call was made, but its recorded answer cannot be read."),
    })
}

/// Returns the reply for a key whose earlier call was lost.
pub(super) fn in_doubt() -> ToolReply {
    ToolReply::failure(
        "in_doubt",
        "An earlier call with this key was started, and it is unknown whether it had its effect. \
         Check before you try again.",
    )
}
