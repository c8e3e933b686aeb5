//! Jobs in sandboxes. Their bodies are those of the tools.

pub use contract::sandbox::{Job, JobLog, JobStatus, JobSummary};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    pub task_id: Option<String>,
    /// Only jobs in this status.
    pub status: Option<JobStatus>,
    /// Only jobs that this node has or had.
    pub node_id: Option<String>,
    /// Default 50, at most 200.
    pub limit: Option<u64>,
    /// How many jobs to skip.
    pub offset: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct JobLogPosition {
    /// The `next` of the piece before; from the beginning if absent.
    pub after: Option<String>,
    /// In bytes. Default 16384, at most 262144.
    pub limit: Option<u64>,
}
