//! The points at which tests kill the process; see [`crash::reach`].

/// One after each step that is visible from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// A job was delivered, and nothing is stored.
    Delivered,
    /// The job is claimed.
    Claimed,
    /// The start is recorded, and the process does not exist.
    BeforeProcess,
    /// The process runs.
    ProcessStarted,
    /// The process and its log have ended, and no file is stored.
    ProcessEnded,
    /// One more file is stored.
    FileStored,
    /// The files are stored, and the result is not.
    FilesStored,
    /// The result is stored, and the message is not acknowledged.
    ResultStored,
    Acknowledged,
}
