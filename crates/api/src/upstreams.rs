//! Upstream MCP servers.

use std::collections::BTreeMap;

use policy::Scope;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewUpstream {
    /// Prefix of its tools, which are named `<namespace>.<tool>`.
    pub namespace: String,
    pub transport: Transport,
    /// Whether tool names are prefixed with the namespace. Only administrators may turn this off.
    #[serde(default = "default_true")]
    pub prefix: bool,
    /// Agents that may call its tools; a tool may override it.
    #[serde(default)]
    pub scope: Scope,
    /// Timeout of a call, for example 30s.
    #[serde(default)]
    pub call_timeout: Option<String>,
    /// Maximum number of concurrent calls.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// The user who owns the server. When a user adds it, always that user.
    #[serde(default)]
    pub owner: Option<String>,
    /// Approve the tools that it first offers without review. Administrators only.
    #[serde(default)]
    pub trust_first: bool,
}

fn default_true() -> bool {
    true
}

/// The fields to change; omitted fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamChange {
    pub transport: Option<Transport>,
    pub scope: Option<Scope>,
    pub call_timeout: Option<String>,
    pub concurrency: Option<u32>,
}

/// How a server is reached. This is what the store keeps, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Http(Http),
    Stdio(Stdio),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// http or https, without a name or password in it.
    pub url: String,
    /// A file of the gateway's machine with the server's bearer token. For administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Which addresses are allowed. Default: `public` if a user installs it, `anywhere` if an administrator
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
}

/// Which addresses are allowed. Checked for every connection by address, not by the text of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Internal addresses too. For administrators.
    Anywhere,
}

/// A program that speaks MCP on its standard input and output. For administrators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Stdio {
    /// The program and its arguments. No shell reads them.
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// As `env`, but each value is a file whose content the program gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

/// Number of tools of a server by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolCounts {
    pub approved: usize,
    pub quarantined: usize,
    pub gone: usize,
}

/// The health of an upstream.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// idle, up, down or open (left alone after too many failures).
    pub state: String,
    pub protocol: Option<String>,
    pub last_error: Option<String>,
    pub restarts: u64,
    pub in_flight: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Upstream {
    pub namespace: String,
    pub owner: Option<String>,
    /// `null` if the stored value is unreadable; the server is then not used.
    pub transport: Option<Transport>,
    pub prefix: bool,
    pub scope: Scope,
    pub enabled: bool,
    pub call_timeout: String,
    pub concurrency: i32,
    pub tools: ToolCounts,
    /// `null` if the server has not been used since the gateway started.
    pub health: Option<Health>,
    pub created_at: String,
    pub created_by: String,
}

/// The result of refreshing the tools of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Refreshed {
    /// New, and now waiting for approval.
    pub new: usize,
    /// Changed, and now waiting for approval.
    pub changed: usize,
    pub unchanged: usize,
    /// Not offered any more.
    pub gone: usize,
}

/// A registered server and the result of its first refresh.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Added))]
pub struct AddedUpstream {
    pub upstream: Upstream,
    /// `null` if the server did not respond.
    pub refreshed: Option<Refreshed>,
    /// Number of tools that were approved without review.
    pub approved: usize,
    /// Why the refresh failed. The server is registered nevertheless.
    pub problem: Option<String>,
}
