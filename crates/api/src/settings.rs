//! System settings.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Setting {
    pub key: String,
    pub value: Value,
    pub value_type: String,
    /// Number of changes; 0 if not set.
    pub version: i64,
    /// The effect on the gateway, if there is one.
    pub description: Option<String>,
    pub updated_at: Option<String>,
    pub updated_by: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutSetting {
    pub value: Value,
    /// Set only if this is the current version; 0 means not set.
    #[serde(default)]
    pub version: Option<i64>,
}
