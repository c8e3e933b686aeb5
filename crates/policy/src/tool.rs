//! What the decision needs to know about a tool.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AgentKind, NetworkProfiles, ScopedId};

/// M114: the agent types that a tool is available to.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Sandbox,
    /// Manager, analyst, orchestrator and runners of workflows.
    Pm,
    #[default]
    Both,
}

impl Scope {
    pub const ALL: [Self; 3] = [Self::Sandbox, Self::Pm, Self::Both];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Pm => "pm",
            Self::Both => "both",
        }
    }

    pub fn includes(self, kind: AgentKind) -> bool {
        match self {
            Self::Both => true,
            Self::Sandbox => is_sandbox(kind),
            Self::Pm => !is_sandbox(kind),
        }
    }
}

/// A node calls for the sandboxes that it runs.
fn is_sandbox(kind: AgentKind) -> bool {
    matches!(kind, AgentKind::Sandbox | AgentKind::Node)
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope `{0}`; expected sandbox, pm or both")]
pub struct UnknownScope(pub String);

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.as_str() == text)
            .ok_or_else(|| UnknownScope(text.to_owned()))
    }
}

/// Where a tool comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It runs inside the gateway.
    BuiltIn,
    /// An upstream tool that an administrator placed in one of the reserved families.
    Family,
    /// An upstream tool under the upstream's own namespace. `owner` is the user who installed it; `None` if
    /// an administrator did.
    Installed { owner: Option<String> },
}

/// A system setting that must be on for a tool to be available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    pub setting: &'static str,
    pub open: bool,
}

/// The properties of a tool that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub name: String,
    pub origin: Origin,
    pub enabled: bool,
    pub scope: Scope,
    pub quarantined: bool,
    /// M103–M105: ids that every call must name.
    pub needs: Vec<ScopedId>,
    pub gate: Option<Gate>,
    /// G13: which memory profiles may reach the network. `None` if the tool does not reach it.
    pub network: Option<Arc<NetworkProfiles>>,
}
