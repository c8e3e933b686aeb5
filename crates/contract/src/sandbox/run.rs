//! `sandbox.run`: creates a job.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{
    NodeId, PoolName, ScopeId,
    job::{Engine, Repeat},
};

use super::Job;
use crate::{artifact::MAX_PATH_BYTES, tool};

pub const MAX_WAIT_SECONDS: u64 = 60;
pub const MAX_TOOLS: usize = 16;

/// `sandbox.run`: creates a job and may wait for its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub task_id: ScopeId,
    /// The program and its arguments. No shell reads them. Either this or `script`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// A script for `/bin/sh`, of one or more lines. Either this or `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// A container image by its digest: `name@sha256:…`. Without one, the job sees the programs of its node,
    /// read-only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Files that are in the job's folder, which is its working directory, when it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<RunFile>,
    /// Artifacts of the task that are in the job's folder under their own paths, as paths or patterns: `**`
    /// for all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// Environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What the job may use at most. What is not given has a default.
    #[serde(default)]
    pub limits: LimitsWanted,
    /// The hosts that the job may reach, as `host` or `host:port`; without a port, 80 and 443. It has no
    /// network when not given. Internal hosts, such as `localhost` and private addresses, are reached only if
    /// the node's setting `sandbox.internal_hosts` names them too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    /// The files to keep, as paths or patterns relative to the job's folder: `report.txt`, `out/**/*.csv`.
    /// They become artifacts of the task under their own paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The tools that the job may call through its node: 16 at most, none when not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_TOOLS))]
    pub tools: Vec<String>,
    /// Any node of this pool may run it: `default` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Only this node may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// A node with all of these labels runs it; of several, one is chosen in turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What isolates the job: `container` with an image and `bwrap` without one, when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Whether it is run again if its node is lost: `safe` without network and tools, else `never`, when not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// How many seconds to wait for its end: 0 when not given, 60 at most. The job goes on after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_WAIT_SECONDS))]
    pub wait_seconds: Option<u64>,
}

tool!("sandbox.run": Run => Job);

/// A file that is in the job's folder when it starts: its content as text, as base64, or that of an artifact
/// of the task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// Relative to the job's folder: `src/main.py`.
    #[schemars(length(max = MAX_PATH_BYTES))]
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<ScopeId>,
    /// The path of an artifact of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_PATH_BYTES))]
    pub artifact_path: Option<String>,
    #[serde(default)]
    pub executable: bool,
}

/// What a job may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsWanted {
    /// Cores: `0.5` is half of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// What it may write to its standard output and standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_kb: Option<u64>,
}
