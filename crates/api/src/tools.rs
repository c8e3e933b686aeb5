//! Tools, built-in and upstream, served or not.

use policy::Scope;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolOrigin {
    /// Built into the gateway.
    #[serde(rename = "own")]
    BuiltIn,
    /// Its server is registered under a reserved namespace.
    Family,
    /// Its server is registered under any other namespace.
    Installed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ToolDoes))]
#[serde(rename_all = "snake_case")]
pub enum ToolEffect {
    Read,
    /// May have effects.
    Write,
}

/// Where the effect of a tool is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ToolDoesBy))]
#[serde(rename_all = "snake_case")]
pub enum ToolEffectSource {
    /// Built into the gateway.
    Gateway,
    /// Set by an administrator.
    Administrator,
    /// The hint of the server, from the approved version.
    Server,
    /// The default for servers of users, whose hints are not trusted.
    Default,
}

/// The effect that an administrator sets for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DoesChange))]
#[serde(rename_all = "snake_case")]
pub enum ToolEffectChange {
    Read,
    Write,
    /// By the hint of the server; `write` if the hint is not trusted.
    AsOffered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolState {
    /// Served, unless it is disabled.
    Approved,
    /// Needs approval.
    Quarantined,
    /// No longer offered by its server.
    Gone,
}

/// A system setting that must be on for the tool to be callable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolGate {
    pub setting: String,
    pub open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub origin: ToolOrigin,
    /// Namespace of its server; `null` for built-in tools.
    pub namespace: Option<String>,
    /// Its name at the server.
    pub remote: Option<String>,
    /// The user who owns its server.
    pub owner: Option<String>,
    pub enabled: bool,
    pub scope: Scope,
    pub does: ToolEffect,
    pub does_by: ToolEffectSource,
    /// Whether a call can be repeated safely.
    pub safe_to_repeat: bool,
    pub state: ToolState,
    pub gate: Option<ToolGate>,
    /// Whether it counts as reaching the network. It is then called only with memory profiles that may do so.
    pub reaches_network: bool,
    /// Ids that every call must contain.
    pub needs: Vec<String>,
}

/// A tool with its input and output schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolDetails {
    #[serde(flatten)]
    pub tool: Tool,
    pub input_schema: Value,
    pub output_schema: Option<Value>,
}

/// The fields to change; omitted fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ToolChange {
    pub enabled: Option<bool>,
    pub scope: Option<Scope>,
    /// Administrators only.
    pub safe_to_repeat: Option<bool>,
    /// Whether it only reads. Administrators only, and only for tools of upstream servers.
    pub does: Option<ToolEffectChange>,
}
