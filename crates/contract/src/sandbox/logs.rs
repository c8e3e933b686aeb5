//! `sandbox.job.logs`: reads what a job wrote.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use crate::{artifact::Encoding, tool};

/// `sandbox.job.logs`: reads what a job wrote to its standard output and standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadLog {
    pub job_id: ScopeId,
    /// The task that the job belongs to, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<ScopeId>,
    /// Give the `next` of the piece before to read on; from the beginning when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// How many bytes: 16384 when not given, 262144 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Text when not given: what is not UTF-8 is replaced.
    #[serde(default)]
    pub encoding: Encoding,
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobLog {
    pub job_id: String,
    /// The attempt that wrote the piece. A job whose node was lost has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub encoding: Encoding,
    pub content: String,
    /// Give this as `after` to read on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// More is stored: read on at once.
    pub has_more: bool,
    /// The job has ended and this piece is the last.
    pub is_complete: bool,
}

tool!("sandbox.job.logs": ReadLog => JobLog);
