//! The errors that a built-in tool returns to the agent.

use policy::Denial;
use sea_orm::DbErr;
use serde_json::{Value, json};

/// Why a tool failed. The agent reads the message and may try something else.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{0}")]
    Invalid(String),
    #[error("{what} {id} not found")]
    NotFound { what: &'static str, id: String },
    #[error("{0}")]
    Conflict(String),
    /// A program that calls reads `reason` and knows what to do.
    #[error("{message}")]
    Refused { code: &'static str, reason: &'static str, message: String, retry_after_ms: Option<u64> },
    /// The call was made for another agent, and that agent may not make it.
    #[error("{tool} is not permitted here: {denial}")]
    Denied { tool: &'static str, denial: Denial },
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    #[error("{0} cannot be changed")]
    ReadOnly(String),
    /// A key that controls what agents may do, see [`is_governing`](policy::is_governing).
    #[error("{0} governs agents; only an administrator can change it, with cynodectl or REST")]
    Governing(String),
    #[error("content rejected: {0}")]
    Malicious(String),
    /// NATS, or a stream that the tool needs.
    #[error("{0}; try again later")]
    Unavailable(String),
    #[error("the store is temporarily unavailable")]
    Store(#[from] DbErr),
}

impl ToolError {
    pub fn not_found(what: &'static str, id: impl Into<String>) -> Self {
        Self::NotFound { what, id: id.into() }
    }

    /// Returns the error code, for the audit and for agents.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_arguments",
            Self::NotFound { .. } => "not_found",
            Self::Conflict(_) => "conflict",
            Self::Refused { code, .. } => code,
            Self::Denied { denial, .. } => denial.error_type(),
            Self::TooLarge { .. } => "too_large",
            Self::ReadOnly(_) | Self::Governing(_) => "read_only",
            Self::Malicious(_) => "malicious_content",
            Self::Unavailable(_) => "nats_unavailable",
            Self::Store(_) => "store_unavailable",
        }
    }

    pub fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code(), "message": self.to_string() });
        if let Self::Refused { reason, retry_after_ms, .. } = self {
            error["reason"] = (*reason).into();
            if let Some(after) = retry_after_ms {
                error["retry_after_ms"] = (*after).into();
            }
        }
        error
    }
}
