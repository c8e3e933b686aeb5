//! Nodes: what a node says about itself, and what it is told in return.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{InstanceId, JobId, NodeId, PoolName, Timestamp, job::Engine};

/// How often a node reports its presence, in seconds.
pub const PRESENCE_SECONDS: u64 = 3;
/// A node that was not heard of for this time counts as away, in seconds.
pub const AWAY_SECONDS: u64 = 15;

/// What a node reports about itself on `node.presence.<node>`. The reply is [`NodeOrders`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    pub node: NodeId,
    /// The process of the node. A node that was restarted has another one.
    pub instance: InstanceId,
    pub version: String,
    pub pool: PoolName,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub state: NodeState,
    /// Why it takes no jobs, if it does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    pub engines: Vec<EngineStatus>,
    /// The digests of the images that it can run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    pub slots: u32,
    pub running: Vec<JobId>,
    pub started_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Takes jobs.
    Ready,
    /// Takes no jobs for now; `reasons` says why.
    NotReady,
    /// Was told to take no more jobs.
    Cordoned,
    /// Stops: it takes no more jobs and ends those that it runs.
    Stopping,
}

/// An engine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineStatus {
    pub engine: Engine,
    /// Whether the node runs jobs with it: it is there, and it held every attempt to escape.
    pub offered: bool,
    /// Why not, if it is not offered; else what an operator should know about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The attempts to escape at the start of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<EscapeAttempt>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EscapeAttempt {
    pub name: String,
    pub held: bool,
    /// Whether it could not be made, so that it shows nothing; `detail` says why. It counts as not held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untried: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// What a node has to do, as the gateway replies to its presence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeOrders {
    /// Take no more jobs.
    pub cordoned: bool,
    /// Hand back what still runs then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_by: Option<Timestamp>,
    /// Another process reports under the same id: take no jobs.
    #[serde(default)]
    pub duplicate: bool,
    /// How many other nodes of its pool take jobs. They may run what this one cannot.
    #[serde(default)]
    pub others: u32,
}
