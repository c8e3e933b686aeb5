//! Schedules. Their bodies are those of the tools, which have the same rules.

pub use contract::schedule::{
    Change as ScheduleChange, Concurrency, Deleted as DeletedSchedule, Firing, FiringNote, MissedRuns,
    NewSchedule, Payload as SchedulePayload, PayloadType as SchedulePayloadType, Preview as SchedulePreview,
    Previewed as PreviewedSchedule, Run as ScheduleRun, RunState as ScheduleRunState, Schedule,
    ScheduleDetails, SkipReason, SkippedSlots, Timing as ScheduleTiming, Trigger as ScheduleRunTrigger,
};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleFilter {
    /// Only schedules of this user. A user sees no others.
    pub user_id: Option<String>,
    /// Default 100, at most 200.
    pub limit: Option<u64>,
    /// How many schedules to skip.
    pub offset: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleOwner {
    /// Whose schedule it is. An administrator names one; a user's schedules are their own.
    pub user_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct ScheduleRunFilter {
    /// Default 50, at most 200.
    pub limit: Option<u64>,
    /// How many runs to skip.
    pub offset: Option<u32>,
}
