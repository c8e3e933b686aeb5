//! The refusal of a handoff.

use crate::ErrorCode;

/// Why a handoff is refused: an error code, and a message for its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    /// Truncates the message to 256 bytes, since it may quote a handoff of any size.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        const MAX_MESSAGE_BYTES: usize = 256;
        let mut message: String = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
            message.push('…');
        }
        Self { code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidHandoff, message)
    }
}
