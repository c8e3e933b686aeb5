//! `workflow.checkpoint.*`: what the saver of a runner stores.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::ScopeId;

use super::Outcome;
use crate::tool;

pub const MAX_STATE_BYTES: usize = 512 * 1024;
/// The data of one checkpoint, and that of all writes of one call, before base64.
pub const MAX_DATA_BYTES: usize = 2 * 1024 * 1024;
pub const MAX_WRITES: usize = 64;

/// `workflow.checkpoint.put`: stores a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutCheckpoint {
    pub task_id: ScopeId,
    pub epoch: i64,
    /// The namespace of the checkpoint, empty for the graph itself.
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub namespace: String,
    /// Later checkpoints have higher ids, compared as text.
    #[schemars(length(min = 1, max = 128))]
    pub checkpoint_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub parent_id: Option<String>,
    /// The serialiser's name of the type of the data.
    #[schemars(length(max = 64))]
    pub kind: String,
    /// Base64; 2 MiB at most before it.
    pub data: String,
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// The node that was completed, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub last_node: Option<String>,
    /// The state after that node, for people and for a retry: 512 KiB at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_WRITES))]
    pub events: Vec<NewEvent>,
}

/// Something that happened, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEvent {
    #[schemars(length(min = 1, max = 128))]
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub step: Option<String>,
    pub outcome: Outcome,
    /// A short text without secrets. A longer one is cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointStored {
    pub checkpoint_id: String,
}

tool!("workflow.checkpoint.put": PutCheckpoint => CheckpointStored);

/// `workflow.checkpoint.put_writes`: stores what a node wrote, before the checkpoint that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutWrites {
    pub task_id: ScopeId,
    pub epoch: i64,
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub namespace: String,
    #[schemars(length(min = 1, max = 128))]
    pub checkpoint_id: String,
    /// The graph's own id of the piece of work that wrote.
    #[schemars(length(min = 1, max = 128))]
    pub write_task_id: String,
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub task_path: String,
    /// Whether writes with the same `idx` are replaced. They are kept otherwise.
    #[serde(default)]
    pub replace: bool,
    #[schemars(length(min = 1, max = MAX_WRITES))]
    pub writes: Vec<NewWrite>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWrite {
    pub idx: i64,
    #[schemars(length(max = 256))]
    pub channel: String,
    #[schemars(length(max = 64))]
    pub kind: String,
    /// Base64.
    pub data: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WritesStored {
    /// How many are new or replaced.
    pub stored: u64,
}

tool!("workflow.checkpoint.put_writes": PutWrites => WritesStored);

/// `workflow.checkpoint.get`: returns a checkpoint, the newest when none is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetCheckpoint {
    pub task_id: ScopeId,
    pub epoch: i64,
    #[serde(default)]
    #[schemars(length(max = 512))]
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub checkpoint_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointFound {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

tool!("workflow.checkpoint.get": GetCheckpoint => CheckpointFound);

/// A stored checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    pub namespace: String,
    pub checkpoint_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<String>,
    pub kind: String,
    /// Base64.
    pub data: String,
    pub metadata: Map<String, Value>,
    pub created_at: String,
    /// In the order of `task_path`, `write_task_id` and `idx`.
    pub writes: Vec<Write>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Write {
    pub write_task_id: String,
    pub task_path: String,
    pub idx: i64,
    pub channel: String,
    pub kind: String,
    /// Base64.
    pub data: String,
}

/// `workflow.checkpoint.list`: lists checkpoints, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListCheckpoints {
    pub task_id: ScopeId,
    pub epoch: i64,
    /// Those of all namespaces when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub namespace: Option<String>,
    /// Only those that were stored before the one with this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub before: Option<String>,
    /// 100 when not given, and at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Only those whose metadata have these values.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointList {
    pub checkpoints: Vec<Checkpoint>,
    /// Whether there are more: the list is also cut at 4 MiB. Give the last id as `before` to get them.
    pub has_more: bool,
}

tool!("workflow.checkpoint.list": ListCheckpoints => CheckpointList);

/// `workflow.checkpoint.delete`: deletes all checkpoints of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteCheckpoints {
    pub task_id: ScopeId,
    pub epoch: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointsDeleted {
    pub deleted: u64,
}

tool!("workflow.checkpoint.delete": DeleteCheckpoints => CheckpointsDeleted);
