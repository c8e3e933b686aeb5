//! Cancels of turns. A cancel is stored, and is due until the turn has its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{ErrorCode, HandoffId, ScopeId};

use super::{AnswerState, TurnAnswer};
use crate::tool;

/// `thread.turn.cancel`: stores that the work on a turn is to be stopped, and revokes the leases of its
/// handoff. Workers are told by the caller, and again by whoever lists what `thread.turn.unsent` gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelTurn {
    pub user_id: ScopeId,
    pub handoff_id: HandoffId,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelledTurn {
    /// Whether the turn has no answer, so that workers are to be told.
    pub is_open: bool,
}

tool!("thread.turn.cancel": CancelTurn => CancelledTurn);

impl TurnAnswer {
    /// Says of the failure of a cancelled turn that it was cancelled.
    pub fn end_as_cancelled(&mut self) {
        self.state = AnswerState::Cancelled;
        self.text = "cancelled by request".to_owned();
        self.error_code = Some(ErrorCode::Cancelled.as_str().to_owned());
    }
}

/// A handoff that workers are to be told to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DueCancel {
    pub handoff_id: HandoffId,
    /// When the handoff was last published. Absent if that is not known, or if the turn is not open any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
}
