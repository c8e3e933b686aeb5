//! Runs of schedules: `schedule.runs` and `schedule.run_now`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::{HandoffId, ScopeId};

use crate::{Page, tool};

/// The longest text that is kept of an answer, in bytes. A longer one is cut.
pub const MAX_TEXT_BYTES: usize = 4 * 1024;

/// What became of a slot, or of a run that a person started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleRun))]
pub struct Run {
    /// Also the id of the handoff, unless it is a job or skipped.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run_id: HandoffId,
    pub schedule_id: String,
    pub user_id: String,
    /// When it was due; of a run that a person started, when that was.
    pub slot: String,
    pub trigger: Trigger,
    pub state: RunState,
    /// Set if it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkippedSlots>,
    pub fired_at: String,
    /// Absent while it is not known that the handoff was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The beginning of the answer; of a failure, what failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleRunTrigger))]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The time had come.
    Slot,
    /// A person asked for it.
    Manual,
}

impl Trigger {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::Manual => "manual",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleRunState))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Stored. It is not known yet that the handoff was published.
    Pending,
    /// The handoff was published, or the job was queued.
    Running,
    Completed,
    /// The project manager needs to know more.
    Question,
    Failed,
    Cancelled,
    /// A later run took its place.
    Replaced,
    /// It took longer than the schedule allows.
    TimedOut,
    /// It did not run.
    Skipped,
}

impl RunState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Question => "question",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Replaced => "replaced",
            Self::TimedOut => "timed_out",
            Self::Skipped => "skipped",
        }
    }

    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

/// One or more slots in a row that were skipped for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkippedSlots {
    pub reason: SkipReason,
    /// The first of them; `slot` of the run is the last.
    pub first_slot: String,
    /// How many there were. A cron timing counts 1000 at most.
    pub slots: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// It was too late for it, as `missed` and `missed_limit` say.
    Missed,
    /// An earlier run was open, and `concurrency` is `forbid`.
    Busy,
    /// A later slot was due as well, and `concurrency` is `replace`.
    Replaced,
}

impl SkipReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Busy => "busy",
            Self::Replaced => "replaced",
        }
    }
}

/// `schedule.runs`: the runs of a schedule, the latest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Runs {
    pub user_id: ScopeId,
    /// Id or name.
    pub schedule: String,
    #[serde(default)]
    pub limit: Option<u64>,
    #[serde(default)]
    pub cursor: Option<String>,
}

tool!("schedule.runs": Runs => Page<Run>);

/// `schedule.run_now`: runs a schedule now, also a suspended one. Its slots stay as they are. The run is
/// published by the next `schedule.fire`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunNow {
    pub user_id: ScopeId,
    /// Id or name.
    pub schedule: String,
}

tool!("schedule.run_now": RunNow => Run);
