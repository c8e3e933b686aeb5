//! Kinds of handoff and roles of instances.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::named_enum;

named_enum! {
    /// The role of a worker instance. Set at start and never changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Role {
        ProjectManager = "project_manager",
        ProjectAnalyst = "project_analyst",
    }

    #[error("`{0}` is not a role; it is `project_manager` or `project_analyst`")]
    pub struct UnknownRole;
}

impl Role {
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

named_enum! {
    /// The kind of a handoff. Each kind has its own subject, consumer and pool.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        Chat = "chat",
        Schedule = "schedule",
        Plan = "plan",
        Continue = "continue",
        Review = "review",
        Verify = "verify",
    }

    #[error("`{0}` is not a kind of handoff")]
    pub struct UnknownKind;
}

impl Kind {
    pub const fn role(self) -> Role {
        match self {
            Self::Chat | Self::Schedule | Self::Plan | Self::Continue | Self::Review => Role::ProjectManager,
            Self::Verify => Role::ProjectAnalyst,
        }
    }
}
