use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// What kind of agent a token was issued for.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    utoipa::ToSchema,
)]
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

/// The one user and the one task that a token is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub user: String,
    pub task: String,
}

/// M116: a manager acts for the system; an analyst and a sandbox always for one user and one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agent {
    Manager,
    Analyst(Bound),
    Sandbox(Bound),
}

impl Agent {
    pub fn kind(&self) -> AgentKind {
        match self {
            Self::Manager => AgentKind::ProjectManager,
            Self::Analyst(_) => AgentKind::ProjectAnalyst,
            Self::Sandbox(_) => AgentKind::Sandbox,
        }
    }

    pub fn bound(&self) -> Option<&Bound> {
        match self {
            Self::Manager => None,
            Self::Analyst(bound) | Self::Sandbox(bound) => Some(bound),
        }
    }
}

/// An agent whose token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The id of the token, never the token.
    pub token: String,
    pub agent: Agent,
}

/// What a presented token is worth at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Valid(Caller),
    Expired(Caller),
    Revoked(Caller),
    /// No token, one that we never issued, or one that we cannot make sense of.
    Unknown,
}

impl Standing {
    /// Whose it is or was, for the audit.
    pub fn caller(&self) -> Option<&Caller> {
        match self {
            Self::Valid(caller) | Self::Expired(caller) | Self::Revoked(caller) => Some(caller),
            Self::Unknown => None,
        }
    }
}
