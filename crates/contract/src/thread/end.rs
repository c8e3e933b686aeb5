//! Ends of turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::HandoffId;

use super::TurnAnswer;
use crate::tool;

/// `thread.turn.end`: stores the answer of a turn. A turn that has one keeps it. What is ended although a
/// worker may still have it is cancelled as well, as with `thread.turn.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndTurn {
    pub handoff_id: HandoffId,
    pub answer: TurnAnswer,
    /// Whether no worker works on the turn any more: it gave this answer, the handoff was never
    /// published, or workers refused it.
    /// If not, the leases of the turn are revoked, and a cancel of it is due until a worker has answered.
    #[serde(default = "is_over")]
    pub is_work_over: bool,
}

/// Orchestrators of earlier builds do not say it.
fn is_over() -> bool {
    true
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedTurn {
    /// Whether this call ended the turn. Otherwise it had ended, or there is no such turn.
    pub ended: bool,
}

tool!("thread.turn.end": EndTurn => EndedTurn);
