//! `node.*`: the machines that run jobs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{PoolName, node::EngineStatus};

use crate::{Page, tool};

/// Whether a node takes jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = NodeCondition))]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Takes jobs.
    Ready,
    /// Takes no jobs for now; `reasons` says why.
    NotReady,
    /// Was told to take no more jobs.
    Cordoned,
    /// Stops: it takes no more jobs.
    Stopping,
    /// Has not been heard of for a while.
    Away,
}

impl Condition {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not_ready",
            Self::Cordoned => "cordoned",
            Self::Stopping => "stopping",
            Self::Away => "away",
        }
    }
}

/// A node as it last reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Node {
    pub node_id: String,
    pub state: Condition,
    /// Why it takes no jobs, if it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    pub pool: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What isolates jobs there, and how it was tested when the node started.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub engines: Vec<EngineStatus>,
    /// The digests of the images that it can run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// How many jobs it runs at most.
    pub slots: u32,
    /// How many jobs it runs.
    pub busy: usize,
    /// The ids of the jobs that it runs, as far as they are the caller's.
    pub running: Vec<String>,
    /// How many jobs wait for this node alone.
    pub waiting: u64,
    pub cordoned: bool,
    /// When it hands back what it still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it last reported.
    pub seen_at: String,
}

/// `node.list`: lists nodes by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Only nodes of this pool.
    pub pool: Option<PoolName>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("node.list": List => Page<Node>);

/// `node.get`: returns one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    #[schemars(length(max = 128))]
    pub node_id: String,
}

tool!("node.get": Get => Node);

/// What became of the jobs that waited for a node which was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RemovedNode))]
pub struct Removed {
    pub node_id: String,
    /// The jobs that wait for other nodes now.
    pub moved: Vec<String>,
    /// The jobs that only this node could run. They end as `node_lost`.
    pub lost: Vec<String>,
}
