//! `schedule.*`: work of users that is due at certain times, for orchestrators.
//!
//! A schedule has a timing, whose due times are its slots, and a payload. A slot becomes one run, or is
//! skipped as the policies of the schedule say. A run of a prompt or a task is a handoff; its id is the id of
//! the handoff. A run of a job specification is a job, and never a handoff.

mod machinery;
mod run;
mod timing;

pub use machinery::{
    DueRun, EndRun, EndedRun, Fire, Fired, ListUnsent, MAX_FIRED, MAX_MARKED, MAX_UNSENT, ManagerPayload,
    MarkSent, MarkedSent, RESEND_AFTER_SECONDS, RunOutcome, Unsent,
};
pub use run::{MAX_TEXT_BYTES, Run, RunNow, RunState, Runs, SkipReason, SkippedSlots, Trigger};
pub use timing::{Firing, FiringNote, MAX_FIRINGS, Preview, Previewed, Timing};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::{HandoffId, ScopeId};

use crate::{Page, task, tool};

pub const MAX_NAME_BYTES: usize = 128;
/// Of a payload as JSON.
pub const MAX_PAYLOAD_BYTES: usize = 16 * 1024;
pub const MAX_SCHEDULES_PER_USER: u64 = 200;
/// The largest number of missed slots that are caught up.
pub const MAX_CATCH_UP: u32 = 100;
pub const DEFAULT_CATCH_UP: u32 = 10;
pub const MAX_TIMEOUT_SECONDS: u64 = 7 * 24 * 60 * 60;
pub const DEFAULT_TIMEOUT_SECONDS: u64 = 24 * 60 * 60;
/// How many ended runs of a schedule are kept.
pub const MAX_RUNS_KEPT: u64 = 500;

/// A schedule without its payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedule {
    pub schedule_id: String,
    pub user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Unique among the schedules of the user.
    pub name: String,
    pub timing: Timing,
    pub payload_type: PayloadType,
    /// False while the schedule is suspended.
    pub enabled: bool,
    pub missed: MissedRuns,
    pub missed_limit: u32,
    pub concurrency: Concurrency,
    pub timeout_seconds: u64,
    /// The next slot, also of a suspended schedule; absent if there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// The last slot that became a run or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_slot: Option<String>,
    /// Grows with every change by a person, not when the schedule fires.
    pub version: i64,
    pub created_at: String,
    pub updated_at: String,
    pub updated_by: String,
}

/// A schedule with its payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleDetails {
    #[serde(flatten)]
    pub schedule: Schedule,
    pub payload: Payload,
}

/// What a schedule asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SchedulePayload))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Payload {
    /// A request in words. The project manager makes a task of it.
    Prompt { prompt: String },
    /// A task, which the project manager creates and starts.
    Task {
        #[schemars(length(min = 1, max = task::MAX_TITLE_BYTES))]
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        acceptance_criteria: Vec<String>,
    },
    /// A job, which is queued at once without a project manager.
    JobSpec {
        /// What has to be done, in a word: `build`, `test`, `shell`.
        kind: String,
        /// What the node that runs it has to know.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        #[cfg_attr(feature = "openapi", schema(value_type = Object))]
        payload: Map<String, Value>,
        /// The task that the job is for; by default one task for all jobs of the schedule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        task_id: Option<ScopeId>,
        /// The node that shall run it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
        node_id: Option<ScopeId>,
    },
}

impl Payload {
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::Prompt { .. } => PayloadType::Prompt,
            Self::Task { .. } => PayloadType::Task,
            Self::JobSpec { .. } => PayloadType::JobSpec,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SchedulePayloadType))]
#[serde(rename_all = "snake_case")]
pub enum PayloadType {
    Prompt,
    Task,
    JobSpec,
}

impl PayloadType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Task => "task",
            Self::JobSpec => "job_spec",
        }
    }
}

/// What happens to slots that were due while nothing fired them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MissedRuns {
    /// They are skipped. Only the latest slot fires, and only if it is at most a minute late.
    Skip,
    /// Only the latest slot fires, however late it is.
    #[default]
    Once,
    /// All fire, oldest first; of more than `missed_limit` slots the latest.
    All,
}

impl MissedRuns {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }
}

/// What happens to a slot that is due while an earlier run of the schedule is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Concurrency {
    /// It fires as well.
    #[default]
    Allow,
    /// It is skipped.
    Forbid,
    /// It fires, and the open run is cancelled.
    Replace,
}

impl Concurrency {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Forbid => "forbid",
            Self::Replace => "replace",
        }
    }
}

/// What a new schedule is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// Unique among the schedules of the user.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES))]
    pub name: String,
    pub timing: Timing,
    pub payload: Payload,
    /// The project that runs are for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub project_id: Option<ScopeId>,
    /// False creates the schedule suspended. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Default once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<MissedRuns>,
    /// For `missed: all`. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_CATCH_UP))]
    pub missed_limit: Option<u32>,
    /// Default allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    /// How long a run may take before it is given up. Default one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECONDS))]
    pub timeout_seconds: Option<u64>,
}

/// `schedule.create`: creates a schedule of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    pub user_id: ScopeId,
    pub new: NewSchedule,
}

tool!("schedule.create": Create => ScheduleDetails);

/// What to change of a schedule; the rest stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ScheduleChange))]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_NAME_BYTES))]
    pub name: Option<String>,
    /// The next slot is the first one of the new timing after now. Slots of the old one that were missed are
    /// dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// False suspends the schedule, true resumes it. What was due while it was suspended counts as missed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<MissedRuns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_CATCH_UP))]
    pub missed_limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<Concurrency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_TIMEOUT_SECONDS))]
    pub timeout_seconds: Option<u64>,
    /// The version that was read. If the schedule has another one by now, nothing is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<i64>,
}

/// `schedule.update`: changes a schedule, suspends or resumes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    pub user_id: ScopeId,
    /// Id or name.
    pub schedule: String,
    pub change: Change,
}

tool!("schedule.update": Update => ScheduleDetails);

/// `schedule.get`: one schedule of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub user_id: ScopeId,
    /// Id or name.
    pub schedule: String,
}

tool!("schedule.get": Get => ScheduleDetails);

/// `schedule.list`: the schedules of a user, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub user_id: ScopeId,
    #[serde(default)]
    pub limit: Option<u64>,
    #[serde(default)]
    pub cursor: Option<String>,
}

tool!("schedule.list": List => Page<Schedule>);

/// `schedule.delete`: deletes a schedule with its runs. Work of open runs goes on unless it is cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    pub user_id: ScopeId,
    /// Id or name.
    pub schedule: String,
    #[serde(default)]
    pub expected_version: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DeletedSchedule))]
pub struct Deleted {
    pub schedule_id: String,
    pub name: String,
    /// The handoffs of open runs, to be cancelled.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub open_runs: Vec<HandoffId>,
}

tool!("schedule.delete": Delete => Deleted);
