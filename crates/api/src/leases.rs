//! Leases.

use std::fmt;

use policy::AgentKind;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeaseState {
    Active,
    /// Expired; its holder can renew it.
    Renewable,
    Ended,
    Revoked,
}

/// A lease without its signed text, which is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    pub id: String,
    /// The lease under which this one was issued.
    pub parent_id: Option<String>,
    /// project_manager, project_analyst or sandbox.
    pub agent: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub task_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub handoff_id: Option<String>,
    /// Tool names and prefixes; all tools of the agent type if absent.
    pub tools: Option<Vec<String>>,
    /// The memory profile of all calls under the lease; that of token or caller if absent.
    #[serde(default)]
    pub profile: Option<String>,
    pub state: LeaseState,
    pub issued_at: String,
    pub issued_by: String,
    pub expires_at: String,
    pub renewable_until: String,
    pub revoked_at: Option<String>,
    pub revoked_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewLease {
    /// project_manager, project_analyst or sandbox.
    pub agent: AgentKind,
    pub user_id: String,
    #[serde(default)]
    pub project_id: Option<String>,
    /// Required for project_analyst and sandbox.
    #[serde(default)]
    pub task_id: Option<String>,
    #[serde(default)]
    pub run_id: Option<String>,
    #[serde(default)]
    pub job_id: Option<String>,
    #[serde(default)]
    pub handoff_id: Option<String>,
    /// Tool names, or prefixes followed by `*`.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// Seconds after which it must be renewed. Default and maximum: `leases.lifetime`.
    #[serde(default)]
    pub lifetime_seconds: Option<u64>,
    /// Seconds for which it can be renewed. Default and maximum: `leases.renewable_for`.
    #[serde(default)]
    pub renewable_seconds: Option<u64>,
}

/// A new lease. The signed text is returned only here.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssuedLease {
    #[serde(flatten)]
    pub lease: Lease,
    /// The signed text, for the header `Cynode-Lease`.
    pub signed: String,
}

impl fmt::Debug for IssuedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedLease").field("id", &self.lease.id).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct LeaseFilter {
    /// Only leases in this state.
    pub state: Option<LeaseState>,
    pub agent: Option<AgentKind>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub handoff_id: Option<String>,
    /// Default 200, at most 1000.
    pub limit: Option<u64>,
}
