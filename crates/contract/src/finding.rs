//! `db.finding.*`: the verdicts of analysts on the acceptance criteria of tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{ScopeId, Severity, Verdict};

use crate::{Page, tool};

pub const MAX_CRITERION_BYTES: usize = 4 * 1024;
pub const MAX_EVIDENCE_BYTES: usize = 16 * 1024;
pub const MAX_LOCATION_BYTES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    pub finding_id: String,
    pub task_id: String,
    pub run_id: Option<String>,
    pub criterion: String,
    pub verdict: Verdict,
    pub severity: Severity,
    pub evidence: String,
    pub location: Option<String>,
    pub created_at: String,
    pub created_by: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    pub task_id: ScopeId,
    pub run_id: Option<ScopeId>,
    /// The acceptance criterion, in its own words.
    #[schemars(length(max = MAX_CRITERION_BYTES))]
    pub criterion: String,
    pub verdict: Verdict,
    pub severity: Severity,
    /// What the verdict rests on.
    #[schemars(length(max = MAX_EVIDENCE_BYTES))]
    pub evidence: Option<String>,
    /// Where it was found: a path, a line, an address.
    #[schemars(length(max = MAX_LOCATION_BYTES))]
    pub location: Option<String>,
}

tool!("db.finding.create": Create => Finding);

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub task_id: ScopeId,
    /// Only findings of this run.
    pub run_id: Option<ScopeId>,
    /// Only findings with this verdict.
    pub verdict: Option<Verdict>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("db.finding.list": List => Page<Finding>);
