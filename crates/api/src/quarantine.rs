//! Quarantine: upstream tools that need approval.

use serde::{Deserialize, Serialize};

/// Why a tool needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Why))]
#[serde(rename_all = "snake_case")]
pub enum QuarantineReason {
    /// Not reviewed yet.
    New,
    /// Different from the approved version.
    Changed,
    /// Another tool has the same name.
    Collision,
    /// Rejected by a reviewer.
    Rejected,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Waiting))]
pub struct QuarantinedTool {
    pub namespace: String,
    /// Its name at the server.
    pub remote: String,
    /// The name under which it would be served.
    pub name: String,
    pub owner: Option<String>,
    pub why: QuarantineReason,
    pub reason: String,
    pub title: Option<String>,
    pub description: String,
    /// Hash of the approved version.
    pub pinned_hash: Option<String>,
    /// Hash of the version that the server offers now. An approval must name it.
    pub offered_hash: Option<String>,
    pub decided_by: Option<String>,
    pub seen_at: String,
}

/// The difference between the approved version of a tool and the one that its server offers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Difference {
    #[serde(flatten)]
    pub tool: QuarantinedTool,
    /// A unified diff of the two as JSON, line by line. Invisible characters are escaped as `\u{…}`.
    pub lines: Vec<String>,
}

/// The reviewed version of a tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// `offered_hash` of the reviewed version.
    pub hash: String,
}
