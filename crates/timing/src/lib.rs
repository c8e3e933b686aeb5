//! When schedules are due, and which of their slots become runs.
//!
//! Everything here is a function of its arguments: no clock is read, and the database of time zones is
//! compiled in. Times are microseconds since 1970, UTC.
//!
//! - [`Timing`]: a cron expression in a time zone, an interval or one instant; its due times are its slots
//! - [`plan()`]: which of the due slots fire and which are skipped, by the policies of a schedule

mod cron;
mod error;
mod interval;
mod plan;
mod timing;
mod zone;

pub use error::Error;
pub use interval::{MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS};
pub use plan::{ON_TIME_SECONDS, Plan, Policies, Skipped, plan};
pub use timing::Timing;
pub use zone::zone_names;

/// Microseconds in a second.
const SECOND_US: i64 = 1_000_000;
