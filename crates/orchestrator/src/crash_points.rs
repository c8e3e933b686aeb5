//! The points at which tests kill the process; see [`crash::reach`].

/// One after each step that is visible from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A turn is stored, and its handoff is not published.
    TurnStored,
    /// The handoff is published, and nothing has been told to the client.
    HandoffPublished,
    /// The answer is known, and not stored in its thread.
    AnswerKnown,
    /// The answer is stored in its thread, and not told to the client.
    AnswerStored,
    /// It is stored that a turn is cancelled, and no worker was told.
    CancelStored,
}
