//! `key.*`: the API keys of users, for orchestrators.

pub use policy::OnDisconnect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool;

/// How the author of an API key of the console begins. Such keys are replaced every few minutes.
pub const BY_CONSOLE: &str = "console:";

/// `key.check`: resolves an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// SHA-256 of the key, in lower-case hexadecimal digits. The key itself is not sent.
    #[schemars(length(equal = 64))]
    pub hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// Absent if the key is unknown, expired or revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Key {
    pub key_id: String,
    pub user_id: String,
    pub expires_at: String,
    /// Whether requests with this key may name their user in a header.
    pub is_front_end: bool,
    pub on_disconnect: OnDisconnect,
}

tool!("key.check": Check => Checked);
