//! The points at which tests kill the process; see [`crash::reach`].

/// One after each step that is visible from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A turn is stored, and its handoff is not published.
    TurnStored,
    /// The handoff is published, and nothing was sent to the client.
    HandoffPublished,
    /// The answer is known, and not stored in its thread.
    AnswerKnown,
    /// The answer is stored in its thread, and not sent to the client.
    AnswerStored,
    /// The cancel of a turn is stored, and not published to workers.
    CancelStored,
}
