//! Best-effort messages on core NATS: deltas, progress events, cancellation, instance status. The answer
//! never depends on them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Act, HandoffId, InstanceId, Kind, Role, StepOutcome, Timestamp};

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

/// A progress event, published on `pma.event.<handoff_id>` while it happens. It contains names, numbers and
/// outcomes, never arguments, results or texts. Kinds and fields may be added: readers ignore those that they
/// do not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    pub handoff_id: HandoffId,
    pub kind: Kind,
    pub instance: InstanceId,
    pub attempt: u32,
    pub progress: Progress,
    /// The model, tool, structured output or task that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Milliseconds since this instance claimed the handoff.
    pub elapsed_ms: u64,
    /// The step that the event belongs to, counted from 0 within the attempt in the order of their start. All
    /// events of one step have the same number. The trace of the answer may list the steps in another order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What the step does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Act>,
    /// How the step ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<StepOutcome>,
    /// How long the step took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// How many tries the step has made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// Why a try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The tools that were offered or selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// How many steps the plan has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<u32>,
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
    /// Tools were chosen for the goal and are offered to the model: `tools`, best match first.
    Offered,
    /// A model call ended.
    Thought,
    /// The model selected tools, which are not called yet: `tools`, in the order of the calls.
    Selected,
    /// A selected call is not made: its arguments are invalid, or the role may not make it.
    NotCalled,
    /// A verification by an analyst ended.
    Verified,
    /// A plan was made, of `planned` steps. No task is created for it yet.
    Planned,
    /// A try of a model or tool call failed. Another one follows, or the end of the step.
    TryFailed,
}

/// Why a try failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The server did not respond: there is no connection to it.
    Unreachable,
    /// The server responded that it cannot serve the request now.
    Unavailable,
    /// The server did not respond in time.
    TimedOut,
    /// The response broke off, or could not be used.
    BadResponse,
    /// The server does not accept the worker's token.
    Unauthorized,
    /// The server rejected the request.
    Refused,
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

/// The status of an instance: its reply on `pma.instance.<instance>`, and its announcement on `pma.presence`
/// when it starts, changes or stops.
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
    /// The servers that this instance called, and whether it reaches them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backends: BTreeMap<Backend, BackendState>,
}

/// A server that an instance calls, besides NATS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The model server.
    Model,
    /// The MCP gateway.
    Gateway,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    Connected,
    /// A call got no response, and none has succeeded since.
    Lost,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that every build knows.
    const EVENT: &str = r#"{
        "handoff_id": "0193f2c0-5a00-7000-8000-00000000c0de", "kind": "chat", "instance": "pm-one",
        "attempt": 1, "progress": "called", "name": "db.task.list", "elapsed_ms": 12
    }"#;

    /// G14: fields are only added, so that readers of any age understand each other.
    #[test]
    fn event_is_read_with_missing_and_with_unknown_fields() {
        let event: Event = serde_json::from_str(EVENT).unwrap();
        assert_eq!((event.progress, event.name.as_deref()), (Progress::Called, Some("db.task.list")));
        assert_eq!((event.step, event.outcome, event.tools.len()), (None, None, 0));
        let written = serde_json::to_value(&event).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(EVENT).unwrap(), "nothing is added");
        let newer = EVENT.replacen('{', r#"{"from_the_future": {"a": [1]}, "ms": 5,"#, 1);
        assert_eq!(serde_json::from_str::<Event>(&newer).unwrap(), Event { ms: Some(5), ..event });
    }

    /// A reader skips an event of a kind that it does not know; it must not take it for another kind.
    #[test]
    fn event_of_an_unknown_kind_is_not_parsed() {
        assert!(serde_json::from_str::<Event>(&EVENT.replace("called", "pondering")).is_err());
    }
}
