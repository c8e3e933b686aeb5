//! The closed set of error codes.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a handoff was not completed. The set is closed; each code has a page under `docs/errors/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    InvalidHandoff,
    UnsupportedVersion,
    UntrustedProducer,
    NotForPma,
    StaleHandoff,
    ScopeMismatch,
    DeadlineExceeded,
    Cancelled,
    ToolRejected,
    ToolFailed,
    InferenceFailed,
    InferenceUnavailable,
    BudgetExceeded,
    Poisoned,
    Internal,
}

impl ErrorCode {
    pub const ALL: [Self; 15] = [
        Self::InvalidHandoff,
        Self::UnsupportedVersion,
        Self::UntrustedProducer,
        Self::NotForPma,
        Self::StaleHandoff,
        Self::ScopeMismatch,
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::ToolRejected,
        Self::ToolFailed,
        Self::InferenceFailed,
        Self::InferenceUnavailable,
        Self::BudgetExceeded,
        Self::Poisoned,
        Self::Internal,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidHandoff => "invalid_handoff",
            Self::UnsupportedVersion => "unsupported_version",
            Self::UntrustedProducer => "untrusted_producer",
            Self::NotForPma => "not_for_pma",
            Self::StaleHandoff => "stale_handoff",
            Self::ScopeMismatch => "scope_mismatch",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::ToolRejected => "tool_rejected",
            Self::ToolFailed => "tool_failed",
            Self::InferenceFailed => "inference_failed",
            Self::InferenceUnavailable => "inference_unavailable",
            Self::BudgetExceeded => "budget_exceeded",
            Self::Poisoned => "poisoned",
            Self::Internal => "internal",
        }
    }

    /// Returns whether the same work, handed off again under a new id, could succeed.
    pub const fn retryable(self) -> bool {
        match self {
            Self::DeadlineExceeded
            | Self::ToolFailed
            | Self::InferenceFailed
            | Self::InferenceUnavailable
            | Self::Poisoned
            | Self::Internal => true,
            Self::InvalidHandoff
            | Self::UnsupportedVersion
            | Self::UntrustedProducer
            | Self::NotForPma
            | Self::StaleHandoff
            | Self::ScopeMismatch
            | Self::Cancelled
            | Self::ToolRejected
            | Self::BudgetExceeded => false,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ErrorCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|code| code.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not an error code"))
    }
}
