//! What a job runs, with what, and within which limits.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Engine;
use crate::text::named_enum;

/// What a job runs. The gateway has checked it; the node checks it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpec {
    /// The program and its arguments. The program is looked up in the sandbox.
    pub command: Vec<String>,
    pub engine: Engine,
    /// The image by its digest. The root of the node, read-only, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InputFile>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
    /// The hosts that the job may reach, each with an optional port. Without any it has no network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    /// Patterns of the files to keep, relative to the job's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// The tools that the job may call through its node. Without any it is given no endpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    pub repeat: Repeat,
}

/// A file that is in the job's folder when it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputFile {
    /// Relative to the job's folder.
    pub path: String,
    #[serde(flatten)]
    pub content: FileContent,
    #[serde(default)]
    pub executable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum FileContent {
    Text {
        text: String,
    },
    Base64 {
        base64: String,
    },
    /// An artifact of the job's task, as it was when the job was created.
    Artifact {
        artifact_id: String,
        sha256: String,
        size: u64,
    },
}

/// What a job may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Thousandths of a core.
    pub cpu_milli: u32,
    pub memory_mb: u32,
    pub pids: u32,
    pub disk_mb: u32,
    pub seconds: u32,
    pub output_kb: u32,
}

impl Limits {
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.memory_mb) * 1024 * 1024
    }

    pub fn disk_bytes(&self) -> u64 {
        u64::from(self.disk_mb) * 1024 * 1024
    }

    pub fn output_bytes(&self) -> u64 {
        u64::from(self.output_kb) * 1024
    }
}

named_enum! {
    /// Whether a job is run again when its node is lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Repeat {
        /// It has no effect but its files, which are kept when it ends: it is run again.
        Safe = "safe",
        /// It may have an effect outside: it is not run again once it was started.
        Never = "never",
    }

    #[error("`{0}` is not a way to repeat; it is `safe` or `never`")]
    pub struct UnknownRepeat;
}
