//! Preferences.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

/// A preference of a user, group, project, task or the system. Preferences under `agents.` configure agents,
/// so agents cannot write them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Preference {
    pub key: String,
    /// A null hides the value of wider scopes.
    pub value: Value,
    pub value_type: String,
    /// system, group, user, project or task.
    pub scope: String,
    pub scope_id: Option<String>,
    pub version: i64,
    pub updated_at: String,
    pub updated_by: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutPreference {
    /// system, group, user, project or task.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub scope: PreferenceScope,
    /// Id of the group, user, project or task; omitted for the system scope.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub scope_id: Option<ScopeId>,
    pub key: String,
    /// A null hides the value of wider scopes.
    pub value: Value,
    /// Set only if this is the current version; 0 means not set.
    #[serde(default)]
    pub version: Option<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct PreferenceAddress {
    /// system, group, user, project or task.
    #[cfg_attr(feature = "openapi", param(value_type = String))]
    pub scope: PreferenceScope,
    /// Id of the group, user, project or task; omitted for the system scope.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub scope_id: Option<ScopeId>,
    pub key: String,
    /// Delete only if this is the current version.
    pub version: Option<i64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct PreferenceFilter {
    /// system, group, user, project or task.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub scope: Option<PreferenceScope>,
    pub scope_id: Option<String>,
    pub key: Option<String>,
}
