//! Jobs: what a node executes in a sandbox, and what it reports about it.
//!
//! A [`Job`] is queued. The node that takes it writes [`Entry`]s to the job's journal and one [`JobResult`].
//! Journal and result form one chain under compare-and-set, so a job has one result, and a node that lost a
//! job to another cannot report on it. Logs are numbered chunks in a stream of their own.

mod class;
mod log;
mod spec;

pub use class::{Class, Engine, UnknownEngine};
pub use log::{LogChunk, MAX_CHUNK_BYTES, NotALogChunk};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use spec::{FileContent, InputFile, JobSpec, Limits, Repeat};

use crate::{CodecError, InstanceId, JobId, NodeId, ScopeId, Timestamp, encode_json, text::named_enum};

/// The newest version of jobs, entries and results that this build writes and reads.
pub const VERSION: u32 = 1;

/// How often a job is started before it counts as one that kills its nodes.
pub const MAX_ATTEMPTS: u32 = 3;

/// How long a job may wait for a node. Its journal and its result are kept a little longer, so that what an
/// earlier attempt did is known.
pub const MAX_WAIT: std::time::Duration = std::time::Duration::from_secs(6 * 24 * 3_600);

/// A job as it is queued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    pub v: u32,
    pub job_id: JobId,
    pub task_id: ScopeId,
    pub created_at: Timestamp,
    /// The signed lease of the job, for calls to the gateway.
    pub lease: String,
    pub spec: JobSpec,
}

/// A request that a job end. It is stored beside the chain, so that a node that takes the job later finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobCancel {
    pub job_id: JobId,
    pub at: Timestamp,
    /// Who asked for it: `<agent type>:<token id>`.
    pub by: String,
}

/// One message of a job's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub v: u32,
    pub at: Timestamp,
    #[serde(flatten)]
    pub record: Record,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A node claimed the job. From here on it is the only writer of the chain.
    Claimed(Claimed),
    /// The process is about to start. If its node dies from here on, the process may have run.
    Started,
    /// The node hands the job back: it stops, or it cannot run the job now.
    Released {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// No progress: the node confirmed that it still owns the job.
    Still,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claimed {
    /// Counted from 1.
    pub attempt: u32,
    pub node: NodeId,
    /// The process of the node.
    pub instance: InstanceId,
    pub engine: Engine,
    /// The stream sequence of the queue message.
    pub queued: u64,
    /// The delivery count of that message.
    pub delivery: u64,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobResult {
    pub v: u32,
    pub job_id: JobId,
    /// The node that ran it. Absent if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    pub attempt: u32,
    pub end: End,
    /// Absent if the process was never started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    #[serde(default)]
    pub usage: JobUsage,
    /// What the log of this attempt holds.
    #[serde(default)]
    pub log: LogExtent,
    /// The files that the job left and that are stored, in the order of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<StoredFile>,
    /// What could not be stored, which connections were refused, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Why a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum End {
    /// The process ended by itself.
    Exited { code: i32 },
    /// A signal ended the process.
    Signalled { signal: i32 },
    /// The job used more memory than its limit.
    Oom,
    /// The job ran longer than its limit.
    Timeout,
    /// The job wrote more output than its limit.
    Output,
    /// The job wrote more to its disk than its limit.
    Disk,
    /// The job was cancelled.
    Cancelled,
    /// The node that ran the job was lost, and the job must not be run again.
    NodeLost {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// No process could be started for the job.
    EngineFailed { why: String },
}

named_enum! {
    /// The name of an [`End`], as rows and metrics have it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum EndKind {
        Exited = "exited",
        Signalled = "signalled",
        Oom = "oom",
        Timeout = "timeout",
        Output = "output",
        Disk = "disk",
        Cancelled = "cancelled",
        NodeLost = "node_lost",
        EngineFailed = "engine_failed",
    }

    #[error("`{0}` is not a job outcome")]
    pub struct UnknownEnd;
}

impl End {
    pub const fn kind(&self) -> EndKind {
        match self {
            Self::Exited { .. } => EndKind::Exited,
            Self::Signalled { .. } => EndKind::Signalled,
            Self::Oom => EndKind::Oom,
            Self::Timeout => EndKind::Timeout,
            Self::Output => EndKind::Output,
            Self::Disk => EndKind::Disk,
            Self::Cancelled => EndKind::Cancelled,
            Self::NodeLost { .. } => EndKind::NodeLost,
            Self::EngineFailed { .. } => EndKind::EngineFailed,
        }
    }

    /// Returns whether the job did what it was to do: its process ended by itself with code 0.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Exited { code: 0 })
    }
}

/// What a job used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobUsage {
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub memory_peak_bytes: u64,
}

/// How much a log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogExtent {
    /// Numbered from 1.
    pub chunks: u64,
    pub bytes: u64,
}

/// A file that a job left, as it was stored at the gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredFile {
    pub path: String,
    /// In bytes.
    pub size: u64,
    pub sha256: String,
}

impl Entry {
    pub fn new(record: Record) -> Self {
        Self { v: VERSION, at: Timestamp::now(), record }
    }

    pub fn encode(&self) -> Vec<u8> {
        encode_json(self)
    }

    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        read(body)
    }
}

impl Job {
    pub fn encode(&self) -> Vec<u8> {
        encode_json(self)
    }

    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        read(body)
    }
}

impl JobResult {
    pub fn encode(&self) -> Vec<u8> {
        encode_json(self)
    }

    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        read(body)
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    crate::decode(crate::Encoding::Json, body)
}

#[cfg(test)]
mod tests;
