//! When a schedule is due, and `schedule.preview`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool;

pub const MAX_FIRINGS: u64 = 100;

/// When a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleTiming))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Timing {
    /// When a cron expression matches the clock of a time zone.
    Cron {
        /// Five fields (minute, hour, day of month, month, day of week), or six with the second in front:
        /// `0 9 * * MON-FRI`.
        expression: String,
        /// An IANA name such as `Europe/Berlin`. Default UTC.
        #[serde(default = "utc")]
        time_zone: String,
    },
    /// Again and again after a fixed time, whatever clocks show.
    Interval {
        every_seconds: u64,
        /// The first slot, in RFC 3339. By default one interval after the schedule is created or changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        starting_at: Option<String>,
    },
    /// One time.
    Once {
        /// In RFC 3339, or without an offset (`2026-10-25T02:30`) by the clock of `time_zone`.
        at: String,
        /// An IANA name. Default UTC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time_zone: Option<String>,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

/// `schedule.preview`: computes when a timing is due, before it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SchedulePreview))]
#[serde(deny_unknown_fields)]
pub struct Preview {
    pub timing: Timing,
    /// How many firings are computed. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_FIRINGS))]
    pub count: Option<u64>,
    /// Those after this time, in RFC 3339. Default now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PreviewedSchedule))]
pub struct Previewed {
    /// The timing in words.
    pub description: String,
    /// The next firings, soonest first. Fewer than asked for if the timing ends.
    pub firings: Vec<Firing>,
}

/// One time at which a timing is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleFiring))]
pub struct Firing {
    /// In UTC.
    pub at: String,
    /// The same instant by the clock of the time zone, with its offset from UTC.
    pub local: String,
    /// Set where the clock is put forward or back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<FiringNote>,
}

/// What a change of the clock does to a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleFiringNote))]
#[serde(rename_all = "snake_case")]
pub enum FiringNote {
    /// The clock skips the time that is asked for: it fires at the first instant after the gap.
    Moved,
    /// The clock shows this time twice, and this is the first time.
    First,
    /// The clock shows this time twice, and this is the second time.
    Second,
}

tool!("schedule.preview": Preview => Previewed);
