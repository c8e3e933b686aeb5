//! The types of agents.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The type of agent that a token was issued for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    ProjectManager,
    ProjectAnalyst,
    Sandbox,
    /// Publishes handoffs and issues their leases.
    Orchestrator,
    /// Runs jobs, and passes on the calls of their sandboxes under their leases.
    Node,
    /// Runs workflows, each under the epoch with which it holds one.
    Workflow,
}

impl AgentKind {
    pub const ALL: [Self; 6] = [
        Self::ProjectManager,
        Self::ProjectAnalyst,
        Self::Sandbox,
        Self::Orchestrator,
        Self::Node,
        Self::Workflow,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProjectManager => "project_manager",
            Self::ProjectAnalyst => "project_analyst",
            Self::Sandbox => "sandbox",
            Self::Orchestrator => "orchestrator",
            Self::Node => "node",
            Self::Workflow => "workflow",
        }
    }
}

impl fmt::Display for AgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown agent type `{0}`; expected project_manager, project_analyst, sandbox, orchestrator, node or \
     workflow"
)]
pub struct UnknownAgent(pub String);

impl FromStr for AgentKind {
    type Err = UnknownAgent;

    fn from_str(text: &str) -> Result<Self, UnknownAgent> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownAgent(text.to_owned()))
    }
}
