//! Times as the store keeps them: microseconds since 1970, UTC.

use time::OffsetDateTime;

/// Returns the current time in microseconds since 1970, UTC.
pub fn now() -> i64 {
    #[cfg(debug_assertions)]
    if let Some(set) = set_by_test::now() {
        return set;
    }
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

/// A clock that a test sets; release builds contain none of this.
#[cfg(debug_assertions)]
mod set_by_test {
    use std::{path::PathBuf, sync::OnceLock};

    /// Names a file with the time in microseconds since 1970. It is read whenever the time is asked for.
    const VARIABLE: &str = "CYNODE_CLOCK_FILE";

    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

    pub(super) fn now() -> Option<i64> {
        let file = FILE.get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from)).as_ref()?;
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}
