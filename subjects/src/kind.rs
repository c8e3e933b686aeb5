//! Kinds of handoff and roles of instances.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The role of a worker instance. Set at start and never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    ProjectManager,
    ProjectAnalyst,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::ProjectManager, Self::ProjectAnalyst];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProjectManager => "project_manager",
            Self::ProjectAnalyst => "project_analyst",
        }
    }

    /// Returns the first token of every subject of this role.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::ProjectManager => "pma",
            Self::ProjectAnalyst => "pa",
        }
    }

    pub const fn other(self) -> Self {
        match self {
            Self::ProjectManager => Self::ProjectAnalyst,
            Self::ProjectAnalyst => Self::ProjectManager,
        }
    }

    /// Returns the kinds of handoff that an instance of this role takes.
    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| kind.role() == self)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role; it is `project_manager` or `project_analyst`")]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// The kind of a handoff. Each kind has its own subject, consumer and pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Chat,
    Schedule,
    Plan,
    Continue,
    Verify,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Chat, Self::Schedule, Self::Plan, Self::Continue, Self::Verify];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Schedule => "schedule",
            Self::Plan => "plan",
            Self::Continue => "continue",
            Self::Verify => "verify",
        }
    }

    pub const fn role(self) -> Role {
        match self {
            Self::Chat | Self::Schedule | Self::Plan | Self::Continue => Role::ProjectManager,
            Self::Verify => Role::ProjectAnalyst,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a kind of handoff")]
pub struct UnknownKind(String);

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownKind(text.to_owned()))
    }
}
