//! The points at which tests kill the process; see [`crash::reach`].

/// One before and one after each step that is visible from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Decoded and accepted, not claimed yet.
    Admitted,
    BeforeClaim,
    Claimed,
    BeforeAppend,
    Appended,
    BeforeModel,
    ModelAnswered,
    BeforeTool,
    ToolAnswered,
    BeforeVerification,
    VerificationAnswered,
    BeforeAnswer,
    Answered,
    BeforeAck,
    Acknowledged,
}
