//! Agents, their tokens and what a presented token is worth.

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
}

impl AgentKind {
    pub const ALL: [Self; 3] = [Self::ProjectManager, Self::ProjectAnalyst, Self::Sandbox];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProjectManager => "project_manager",
            Self::ProjectAnalyst => "project_analyst",
            Self::Sandbox => "sandbox",
        }
    }
}

impl fmt::Display for AgentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown agent type `{0}`; expected project_manager, project_analyst or sandbox")]
pub struct UnknownAgent(pub String);

impl FromStr for AgentKind {
    type Err = UnknownAgent;

    fn from_str(text: &str) -> Result<Self, UnknownAgent> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownAgent(text.to_owned()))
    }
}

/// The only user and task that a token may act for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBinding {
    pub user: String,
    pub task: String,
}

/// M116: a manager acts for the whole system; an analyst and a sandbox act for one user and one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    Manager,
    Analyst(TokenBinding),
    Sandbox(TokenBinding),
}

impl Agent {
    pub fn kind(&self) -> AgentKind {
        match self {
            Self::Manager => AgentKind::ProjectManager,
            Self::Analyst(_) => AgentKind::ProjectAnalyst,
            Self::Sandbox(_) => AgentKind::Sandbox,
        }
    }

    /// Returns the user and task that the agent is confined to; `None` for a manager.
    pub fn binding(&self) -> Option<&TokenBinding> {
        match self {
            Self::Manager => None,
            Self::Analyst(binding) | Self::Sandbox(binding) => Some(binding),
        }
    }
}

/// An agent that presented a token the gateway issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The id of the token, never its secret.
    pub token: String,
    pub agent: Agent,
}

/// The status of a presented token at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Valid(Caller),
    Expired(Caller),
    Revoked(Caller),
    /// No token, a token the gateway never issued, or one whose stored row is invalid.
    Unknown,
}

impl Standing {
    /// Returns the agent the token was issued for, valid or not, for the audit.
    pub fn caller(&self) -> Option<&Caller> {
        match self {
            Self::Valid(caller) | Self::Expired(caller) | Self::Revoked(caller) => Some(caller),
            Self::Unknown => None,
        }
    }
}
