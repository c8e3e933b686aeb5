//! Messages on core NATS: best effort, never needed for the answer.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HandoffId, InstanceId, Kind, Role, Timestamp};

/// Text as the model writes it, on `pma.delta.<handoff_id>`, for a handoff that asked for it. What is lost on the way
/// is in the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    pub handoff_id: HandoffId,
    /// How often the handoff was taken up, this time included. A higher one starts everything over.
    pub attempt: u32,
    /// Which turn of the model this belongs to, from 0. Only the last turn's text is the answer.
    pub turn: u32,
    /// A turn that broke off is asked for again from its beginning, with a higher number here.
    pub r#try: u32,
    /// Counts up from 0 within a try, so that a gap is seen.
    pub sequence: u64,
    pub text: String,
}

/// How far a handoff has come, on `pma.event.<handoff_id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub handoff_id: HandoffId,
    pub kind: Kind,
    pub instance: InstanceId,
    pub attempt: u32,
    pub progress: Progress,
    /// The model or tool that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Milliseconds since this instance took the handoff up.
    pub elapsed_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Still at it. Sent every few seconds.
    Working,
    /// A model is being asked.
    Thinking,
    /// A tool is being called.
    Calling,
    /// A tool call is over.
    Called,
    /// An analyst is verifying.
    Verifying,
}

/// What an instance answers to `pma.cancel.<handoff_id>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelReply {
    pub instance: InstanceId,
    pub state: CancelState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelState {
    /// It was running here and has been told to stop.
    Stopping,
    /// Not running here; should it arrive, it is answered as cancelled.
    Remembered,
}

/// What an instance answers on `pma.instance.<instance>`, and announces on `pma.presence`.
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
    /// Which inference backend and model answer here.
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
