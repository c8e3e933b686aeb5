//! The audit: where the chain begins, its signed heads, and the result of its verification.

use serde::{Deserialize, Serialize};
use subjects::audit::Head;

/// Where the chain begins: rows up to and including this one were pruned. The first line of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pruned {
    pub pruned_seq: i64,
    pub pruned_hash: String,
}

/// Signed heads of the chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heads {
    /// The public key of the signer.
    pub key: String,
    pub heads: Vec<Head>,
}

/// The result of verifying the chain against its signed heads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Verified))]
pub struct AuditVerification {
    pub ok: bool,
    /// Number of verified rows.
    pub rows: i64,
    /// Number of signed heads that match.
    pub heads: usize,
    /// The first invalid row.
    pub bad_row: Option<i64>,
    pub problem: Option<String>,
}

/// What is known of the audit of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeAudit {
    /// The leases that were bound to nodes last, newest first; at most 1000.
    pub leases: Vec<NodeLease>,
    /// Newest first; at most 1000.
    pub alarms: Vec<NodeAlarm>,
}

/// A lease that is bound to a node, and how far the node's audit of it was taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeLease {
    pub lease_id: String,
    /// The lease of the job.
    pub parent_id: String,
    pub job_id: Option<String>,
    pub node: String,
    /// The public nkey of the node.
    pub holder: String,
    /// Microseconds since 1970.
    pub bound_at: i64,
    pub expires_at: i64,
    /// The last line that was taken over, and its hash.
    pub lines: i64,
    pub head: String,
    /// The number of lines, and the hash of the last, that the node stated when it last renewed the lease.
    pub stated_lines: i64,
    pub stated_head: String,
    pub closed_at: Option<i64>,
    pub close_reason: Option<String>,
}

/// Something that is wrong with the audit of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeAlarm {
    pub node: String,
    pub lease_id: String,
    /// gap, changed, unknown_lease, other_node, other_holder, bad_signature, truncated, replaced, not_closed
    /// or overrun.
    pub kind: String,
    pub line: i64,
    pub detail: String,
    /// Microseconds since 1970.
    pub raised_at: i64,
    /// Set when what was missing has come.
    pub resolved_at: Option<i64>,
}
