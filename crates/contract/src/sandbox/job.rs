//! `sandbox.job.get`, `list` and `cancel`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{
    ScopeId,
    job::{End, Engine, JobUsage, Limits, LogExtent, StoredFile},
};

use crate::{Page, tool};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobStatus {
    /// Waits for a node.
    Queued,
    /// A node has it.
    Running,
    /// Its process ended by itself with code 0.
    Completed,
    /// It ended in another way; `end` says how.
    Failed,
    Canceled,
}

impl JobStatus {
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Completed, Self::Failed, Self::Canceled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    /// Returns whether the job has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled)
    }
}

/// A job: what it runs, where, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SandboxJob))]
pub struct Job {
    pub job_id: String,
    pub task_id: String,
    pub status: JobStatus,
    /// Why it waits, or what is uncertain about the node that has it. Absent if nothing is to be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_because: Option<String>,
    /// How it ended: `exited` with a `code`, `signalled`, `oom`, `timeout`, `output`, `disk`, `cancelled`,
    /// `node_lost` or `engine_failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub end: Option<End>,
    /// The code with which its process ended, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The end of what it wrote, 4 KiB at most; `sandbox.job.logs` has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
    /// How much it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub log: Option<LogExtent>,
    /// The files that it left, which are artifacts of the task now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub files: Vec<StoredFile>,
    /// What could not be stored, which connections were refused, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub limits: Limits,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Where it waits or waited: `pool <pool>` or `node <node>`.
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub engine: Option<Engine>,
    /// The node that has it, or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// How often it was taken by a node.
    pub attempt: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub usage: Option<JobUsage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<String>,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SandboxJobSummary))]
pub struct JobSummary {
    pub job_id: String,
    pub task_id: String,
    pub status: JobStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub end: Option<End>,
    /// What it runs, shortened.
    pub command: String,
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_requested_at: Option<String>,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

/// `sandbox.job.get`: returns one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetJob {
    pub job_id: ScopeId,
    /// The task that the job belongs to, when known.
    #[serde(default)]
    pub task_id: Option<ScopeId>,
}

tool!("sandbox.job.get": GetJob => Job);

/// `sandbox.job.list`: lists jobs, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields, default)]
pub struct ListJobs {
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub task_id: Option<ScopeId>,
    /// Only jobs in this status.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub status: Option<JobStatus>,
    /// Only jobs that this node has or had.
    pub node_id: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("sandbox.job.list": ListJobs => Page<JobSummary>);

/// `sandbox.job.cancel`: asks that a job end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelJob {
    pub job_id: ScopeId,
    /// The task that the job belongs to, when known.
    #[serde(default)]
    pub task_id: Option<ScopeId>,
}

tool!("sandbox.job.cancel": CancelJob => Job);
