//! What the gateway reports about API keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The subject on which the gateway reports each API key that is revoked.
pub const REVOKED_SUBJECT: &str = "cynode.key.revoked";

/// An API key was revoked. Who keeps the result of a check drops it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    pub key_id: String,
    pub user_id: String,
    /// RFC 3339.
    pub revoked_at: String,
    /// Who revoked it: `admin:<token id>`.
    pub revoked_by: String,
}

impl Revoked {
    /// Returns the id under which the message is published.
    pub fn message_id(&self) -> String {
        format!("key-revoked-{}", self.key_id)
    }
}
