//! Times as the store keeps them: microseconds since 1970, UTC.

use time::OffsetDateTime;

/// Returns the current time in microseconds since 1970, UTC.
pub fn now() -> i64 {
    micros(OffsetDateTime::now_utc())
}

pub fn micros(at: OffsetDateTime) -> i64 {
    // Fits until the year 294247.
    i64::try_from(at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

pub fn from_micros(at: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Formats a time as RFC 3339.
pub fn text(at: i64) -> String {
    from_micros(at).format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}
