//! `lease.*`: leases, which say on whose behalf an agent acts.

use std::collections::BTreeMap;

use policy::{AgentKind, Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{NodeId, ScopeId};

use crate::tool;

pub const MAX_TOOLS: usize = 32;

/// `lease.issue`: issues a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Issue {
    /// The agent type that may use the lease.
    pub agent: AgentKind,
    /// The user of the manager's own lease when not given. An orchestrator names one.
    #[serde(default)]
    pub user_id: Option<ScopeId>,
    #[serde(default)]
    pub project_id: Option<ScopeId>,
    /// An analyst and a sandbox need one.
    #[serde(default)]
    pub task_id: Option<ScopeId>,
    #[serde(default)]
    pub run_id: Option<ScopeId>,
    #[serde(default)]
    pub job_id: Option<ScopeId>,
    /// The handoff that the lease is for.
    #[serde(default)]
    pub handoff_id: Option<ScopeId>,
    /// Tool names, or prefixes followed by `*`. All tools of the agent type when not given.
    #[serde(default)]
    #[schemars(length(max = MAX_TOOLS))]
    pub tools: Option<Vec<String>>,
    /// How many seconds it lasts before it must be renewed.
    #[serde(default)]
    pub lifetime_seconds: Option<u64>,
    /// For how many seconds it can be renewed.
    #[serde(default)]
    pub renewable_seconds: Option<u64>,
}

impl Issue {
    /// Returns a lease for a user, without further limits.
    pub fn new(agent: AgentKind, user_id: Option<ScopeId>) -> Self {
        Self {
            agent,
            user_id,
            project_id: None,
            task_id: None,
            run_id: None,
            job_id: None,
            handoff_id: None,
            tools: None,
            lifetime_seconds: None,
            renewable_seconds: None,
        }
    }
}

/// A signed lease. It is worth something only together with a token of its agent type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issued {
    pub lease_id: String,
    /// The signed text, for the header `Cynode-Lease`.
    pub lease: String,
    pub expires_at: String,
    /// It can be renewed until then, also after it has expired.
    pub renewable_until: String,
}

tool!("lease.issue": Issue => Issued);

/// `lease.renew`: renews the lease of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    /// How many lines a node has written to its audit of the lease.
    #[serde(default)]
    pub audit_lines: Option<u64>,
    /// The hash of the last of these lines.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub audit_head: Option<String>,
}

tool!("lease.renew": Renew => Issued);

/// `lease.bind`: issues a lease under the lease of the call, for the node that runs the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    /// The id of the node.
    pub node: NodeId,
    /// The public nkey of the node, which signs its audit.
    #[schemars(length(max = 64))]
    pub holder: String,
    /// The node's own tools: for each namespace the digest of its tools.
    #[serde(default)]
    pub local: BTreeMap<String, String>,
    /// How many lines the node wants to write to its audit of the lease.
    #[serde(default)]
    pub audit_quota: Option<u64>,
    /// How many seconds it lasts before it must be renewed.
    #[serde(default)]
    pub lifetime_seconds: Option<u64>,
}

/// A lease that is bound to a node, and by what the node decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bound {
    pub lease_id: String,
    /// The signed text, for the header `Cynode-Lease`.
    pub lease: String,
    pub expires_at: String,
    pub renewable_until: String,
    /// The access rules that the lease names by their digest, in their order.
    pub rules: Vec<Rule>,
}

impl Bound {
    /// Returns the digest of access rules, as a lease names them.
    pub fn digest_of(rules: &[Rule]) -> String {
        subjects::edge::digest(&subjects::encode_json(&rules))
    }
}

tool!("lease.bind": Bind => Bound);

/// `lease.revoke`: revokes a lease and all that were issued under it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// The lease of the call when not given.
    #[serde(default)]
    pub lease_id: Option<ScopeId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    pub lease_id: String,
    /// How many leases this call revoked. None if it had been revoked before.
    pub revoked: u64,
}

tool!("lease.revoke": Revoke => Revoked);
