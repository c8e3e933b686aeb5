//! Times as the store keeps them: microseconds since 1970, UTC.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use time::OffsetDateTime;

/// Returns the current time in microseconds since 1970, UTC.
pub fn now() -> i64 {
    #[cfg(debug_assertions)]
    if let Some(set) = set_by_test::now() {
        return set;
    }
    micros(OffsetDateTime::now_utc())
}

/// Returns the latest time that this process has seen, `at` included: a clock that is set back must not
/// revive what has expired.
pub fn latest(at: i64) -> i64 {
    static LATEST: AtomicI64 = AtomicI64::new(i64::MIN);
    LATEST.fetch_max(at, Ordering::Relaxed).max(at)
}

/// Returns the time by which leases are issued, renewed, checked and shown: the latest that this process has
/// seen. With another clock, one that was ahead and is set back would give leases that have ended already.
pub fn of_leases() -> i64 {
    latest(now())
}

/// Returns the time by which a lease is checked that a gateway on the store signed. The clock of that gateway
/// may be ahead of this one, so the beginning of the lease counts as a time that was seen, unless it is
/// further ahead than `tolerance`: a gateway whose clock is wrong must not take the others with it.
pub fn of_signed_lease(not_before: i64, tolerance: Duration) -> i64 {
    let tolerance = i64::try_from(tolerance.as_micros()).unwrap_or(i64::MAX);
    if not_before <= now().saturating_add(tolerance) {
        latest(not_before);
    }
    of_leases()
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
