//! Why a timing is refused.

/// Why a timing is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("unknown time zone `{0}`; name one of the IANA database, such as Europe/Berlin")]
    UnknownZone(String),
    #[error("a cron expression has at most {0} characters of ASCII")]
    ExpressionTooLong(usize),
    #[error(
        "a cron expression has 5 fields (minute, hour, day of month, month, day of week) or 6 with the \
         second in front; this one has {0}"
    )]
    Fields(usize),
    #[error("invalid cron expression: {0}")]
    Expression(String),
    #[error("an interval has {0} to {1} seconds")]
    Interval(u64, u64),
    #[error(
        "invalid time `{0}`; write it as in 2026-10-25T02:30:00Z, or without Z for the time zone's clock"
    )]
    Time(String),
    #[error("the time `{0}` is too late; name one before the year 9999")]
    TooLate(String),
    #[error(
        "the timing is not due after {0}: its times are earlier, or after the year 4999, up to which cron \
         expressions are computed"
    )]
    NoneAfter(String),
    #[error(
        "the timing is not due any more: all of its times have passed, or it names a day that never comes"
    )]
    NeverDue,
}
