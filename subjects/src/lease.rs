//! What the gateway reports about leases.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The subject on which the gateway reports each lease that is revoked.
pub const REVOKED_SUBJECT: &str = "cynode.lease.revoked";

/// A lease was revoked. Reported once for each lease, also for those that end with another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    pub lease_id: String,
    /// The agent type that the lease is for.
    pub agent: String,
    pub user_id: String,
    pub handoff_id: Option<String>,
    /// RFC 3339.
    pub revoked_at: String,
    /// Who revoked it: `<agent type>:<token id>`.
    pub revoked_by: String,
}

impl Revoked {
    /// Returns the id under which the message is published.
    pub fn message_id(&self) -> String {
        format!("lease-revoked-{}", self.lease_id)
    }
}
