//! Times as the store keeps them: microseconds since 1970, UTC.
//!
//! Gateways on one database must agree on the time, since each of them judges by it what the others stored:
//! leases, calls in flight, presence of nodes. So with PostgreSQL its server has the clock, whatever the
//! machines of the gateways say.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use time::OffsetDateTime;

/// The instant from which the time of the database server is carried on.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// The time of the database server at [`START`], once it was read.
static SERVER_AT_START: AtomicI64 = AtomicI64::new(i64::MIN);

/// Returns the current time in microseconds since 1970, UTC: that of the database server if there is one,
/// otherwise that of this machine.
pub fn now() -> i64 {
    #[cfg(debug_assertions)]
    if let Some(set) = set_by_test::time() {
        return set;
    }
    match SERVER_AT_START.load(Ordering::Relaxed) {
        i64::MIN => of_machine(),
        at_start => at_start.saturating_add(since_start(Instant::now())),
    }
}

/// Returns whether the time is that of a database server.
pub(crate) fn follows_server() -> bool {
    SERVER_AT_START.load(Ordering::Relaxed) != i64::MIN
}

/// Sets the time to that of the database server, which said it between `asked` and `answered`.
pub(crate) fn follow(server: i64, asked: Instant, answered: Instant) {
    let halfway = asked + answered.saturating_duration_since(asked) / 2;
    SERVER_AT_START.store(server.saturating_sub(since_start(halfway)), Ordering::Relaxed);
}

fn since_start(instant: Instant) -> i64 {
    let start = *START;
    match instant.checked_duration_since(start) {
        Some(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        None => -i64::try_from((start - instant).as_micros()).unwrap_or(i64::MAX),
    }
}

fn of_machine() -> i64 {
    #[cfg(debug_assertions)]
    if let Some(set) = set_by_test::time_of_machine() {
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

/// Clocks that a test sets; release builds contain none of this.
#[cfg(debug_assertions)]
mod set_by_test {
    use std::{path::PathBuf, sync::OnceLock};

    /// Names a file with the time in microseconds since 1970, which is then the time of everybody: it is also
    /// that of the database server. It is read whenever the time is asked for.
    const TIME: &str = "CYNODE_CLOCK_FILE";
    /// Names a file with the time by the clock of this machine.
    const TIME_OF_MACHINE: &str = "CYNODE_MACHINE_CLOCK_FILE";

    pub(super) fn time() -> Option<i64> {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        read(TIME, &FILE)
    }

    pub(super) fn time_of_machine() -> Option<i64> {
        static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
        read(TIME_OF_MACHINE, &FILE)
    }

    fn read(variable: &str, file: &OnceLock<Option<PathBuf>>) -> Option<i64> {
        let file = file.get_or_init(|| std::env::var_os(variable).map(PathBuf::from)).as_ref()?;
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }
}
