//! Best-effort messages on core NATS: deltas, progress events, cancellation, instance status. The answer
//! never depends on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HandoffId, InstanceId, Kind, Role, Timestamp};

/// A piece of the model's text, published on `pma.delta.<handoff_id>` if the handoff requested streaming.
/// Deltas may be lost; the answer contains the complete text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    pub handoff_id: HandoffId,
    /// The attempt, counted from 1. A higher attempt starts the text over.
    pub attempt: u32,
    /// The model turn, counted from 0. Only the text of the last turn is the answer.
    pub turn: u32,
    /// The try within the turn. A turn that was interrupted is requested again from its beginning, with a
    /// higher number.
    pub r#try: u32,
    /// Counted from 0 within a try, so that gaps can be detected.
    pub sequence: u64,
    pub text: String,
}

/// A progress event, published on `pma.event.<handoff_id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub handoff_id: HandoffId,
    pub kind: Kind,
    pub instance: InstanceId,
    pub attempt: u32,
    pub progress: Progress,
    /// The model or tool that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Milliseconds since this instance claimed the handoff.
    pub elapsed_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Work continues. Sent every few seconds.
    Working,
    /// A model call started.
    Thinking,
    /// A tool call started.
    Calling,
    /// A tool call ended.
    Called,
    /// A verification by an analyst started.
    Verifying,
}

/// The reply of an instance to a request on `pma.cancel.<handoff_id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelReply {
    pub instance: InstanceId,
    pub state: CancelState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelState {
    /// The handoff is running on this instance and is being stopped.
    Stopping,
    /// The handoff is not running on this instance. If it arrives here later, it is answered as cancelled.
    Remembered,
}

/// The status of an instance: its reply on `pma.instance.<instance>`, and its announcement on `pma.presence`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceStatus {
    pub instance: InstanceId,
    pub role: Role,
    pub version: String,
    pub state: InstanceState,
    pub started_at: Timestamp,
    pub in_flight: BTreeMap<Kind, InFlight>,
    /// SHA-256 of the instruction bundle in use.
    pub bundle: String,
    /// The inference backend and model that this instance uses.
    pub model_route: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    Ready,
    NotReady,
    Draining,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InFlight {
    pub running: usize,
    pub slots: usize,
}
