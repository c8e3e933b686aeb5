//! The closed set of error codes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::named_enum;

named_enum! {
    /// Why a handoff was not completed. The set is closed; each code has a page under `docs/errors/`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ErrorCode {
        InvalidHandoff = "invalid_handoff",
        UnsupportedVersion = "unsupported_version",
        UntrustedProducer = "untrusted_producer",
        NotForPma = "not_for_pma",
        StaleHandoff = "stale_handoff",
        ScopeMismatch = "scope_mismatch",
        DeadlineExceeded = "deadline_exceeded",
        Cancelled = "cancelled",
        ToolRejected = "tool_rejected",
        ToolFailed = "tool_failed",
        InferenceFailed = "inference_failed",
        InferenceUnavailable = "inference_unavailable",
        BudgetExceeded = "budget_exceeded",
        Poisoned = "poisoned",
        Internal = "internal",
    }

    #[error("`{0}` is not an error code")]
    pub struct UnknownCode;
}

impl ErrorCode {
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
